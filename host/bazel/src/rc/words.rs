//! A line of a `.bazelrc` as words, in Bazel's own way, which is not a shell's: `#` begins a comment in the middle of a word
//! too, and what is never closed is closed by the end of the line.

/// A word, and where it begins in its line (in bytes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) start: usize,
}

/// What Bazel takes without a word, though nobody means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slip {
    /// A quote is not closed.
    OpenQuote,
    /// A comment begins in the middle of a word.
    CommentInWord,
}

/// The words of a line, where its comment begins if it has one, and slips with their place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) words: Vec<Piece>,
    pub(super) comment: Option<usize>,
    pub(super) slips: Vec<(usize, Slip)>,
}

/// Splits a line. Words that come out empty (`""`) are dropped, as Bazel drops them.
pub(super) fn split(line: &str) -> Split {
    let mut split = Split::default();
    let mut rest = line.char_indices().peekable();
    while let Some(&(start, first)) = rest.peek() {
        match first {
            ' ' | '\t' | '\r' | '\n' => {
                rest.next();
            }
            '#' => {
                split.comment = Some(start);
                return split;
            }
            _ => {
                let text = word(start, &mut rest, &mut split);
                if !text.is_empty() {
                    split.words.push(Piece { text, start });
                }
                if split.comment.is_some() {
                    return split;
                }
            }
        }
    }
    split
}

/// Takes one word off the line.
fn word(
    start: usize,
    rest: &mut std::iter::Peekable<std::str::CharIndices<'_>>,
    split: &mut Split,
) -> String {
    let mut text = String::new();
    let mut quote = None;
    while let Some(&(at, next)) = rest.peek() {
        if quote.is_none() && matches!(next, ' ' | '\t' | '\r' | '\n') {
            return text;
        }
        rest.next();
        match (next, quote) {
            ('\\', _) => text.extend(rest.next().map(|(_, escaped)| escaped)),
            (_, Some(open)) if next == open => quote = None,
            (_, Some(_)) => text.push(next),
            ('#', None) => {
                split.comment = Some(at);
                split.slips.push((at, Slip::CommentInWord));
                return text;
            }
            ('"' | '\'', None) => quote = Some(next),
            (_, None) => text.push(next),
        }
    }
    if quote.is_some() {
        split.slips.push((start, Slip::OpenQuote));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Slip, split};

    fn words(line: &str) -> Vec<String> {
        split(line).words.into_iter().map(|word| word.text).collect()
    }

    /// What `--announce_rc` of Bazel 7.7.1 shows for the same lines.
    #[test]
    fn words_are_what_bazel_takes_them_for() {
        let line = r#"build --copt="a b" --copt='c # d' --copt=e\ f --copt=g#h more"#;
        assert_eq!(words(line), ["build", "--copt=a b", "--copt=c # d", "--copt=e f", "--copt=g"]);
        assert_eq!(words("  # nothing"), [""; 0]);
        assert_eq!(words("a '' \"\" b"), ["a", "b"]);
        assert_eq!(words(r#"a"b'c"d \"e\" 'f\'g'"#), ["ab'cd", "\"e\"", "f'g"]);
    }

    #[test]
    fn slips_are_told() {
        assert_eq!(split("a \"b c").slips, [(2, Slip::OpenQuote)]);
        assert_eq!(split("a b#c").slips, [(3, Slip::CommentInWord)]);
        assert_eq!(split("a b #c").slips, []);
        assert_eq!(split("a b #c").comment, Some(4));
    }
}
