//! The lines of a file, with those that a backslash continues put together, and the way back to the lines of the editor.

/// What Bazel takes for one line.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) text: String,
    /// Where each line of the file begins in `text`, and its number.
    starts: Vec<(usize, usize)>,
}

impl Line {
    /// The number of the file's line that has this byte.
    pub(super) fn number(&self, at: usize) -> usize {
        let after = self.starts.partition_point(|(start, _)| *start <= at);
        self.starts[..after].last().map_or(1, |(_, number)| *number)
    }

    /// The first line of the file that begins after this byte, if this line goes on there.
    pub(super) fn continued_after(&self, at: usize) -> Option<usize> {
        self.starts.iter().find(|(start, _)| *start > at).map(|(_, number)| *number)
    }
}

/// A backslash at the end of a line joins it with the next, also in the middle of a word or of a comment.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut current: Option<Line> = None;
    for (index, line) in text.split('\n').enumerate() {
        let whole = current.get_or_insert_with(|| Line { text: String::new(), starts: Vec::new() });
        whole.starts.push((whole.text.len(), index + 1));
        match line.strip_suffix('\\').or_else(|| line.strip_suffix("\\\r")) {
            Some(joined) => whole.text.push_str(joined),
            None => {
                whole.text.push_str(line);
                lines.extend(current.take());
            }
        }
    }
    lines.extend(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn a_continued_line_is_one_and_knows_its_lines() {
        let lines = lines("a \\\n b\\\r\nc\nd");
        let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["a  bc", "d"]);
        assert_eq!([0, 2, 3, 4].map(|at| lines[0].number(at)), [1, 2, 2, 3]);
        assert_eq!(lines[1].number(0), 4);
        assert_eq!((lines[0].continued_after(0), lines[0].continued_after(4)), (Some(2), None));
    }
}
