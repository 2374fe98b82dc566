//! Bazel's filters of `--strategy_regexp`: expressions with commas between them, those behind a minus take away.

use regex_lite::{Regex, RegexBuilder};

/// Bytes that a compiled expression may take, so that a file of somebody's can't take all there is. Matching takes time in proportion to the text.
const SIZE_MAX_BYTES: usize = 1 << 20;

/// A filter.
#[derive(Debug)]
pub struct RegexFilter {
    included: Vec<Regex>,
    excluded: Vec<Regex>,
}

impl RegexFilter {
    /// Reads `EXPRESSION,-EXPRESSION,…`; a comma within one is written `\,`.
    ///
    /// # Errors
    /// An expression is none, or has what only Java's have: looking ahead or behind, references back.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut filter = Self { included: Vec::new(), excluded: Vec::new() };
        for piece in pieces(text) {
            let (list, expression) = match piece.strip_prefix('-') {
                Some(rest) => (&mut filter.excluded, rest),
                None => (&mut filter.included, piece.strip_prefix('+').unwrap_or(&piece)),
            };
            if !expression.is_empty() {
                let compiled = RegexBuilder::new(expression).size_limit(SIZE_MAX_BYTES).build();
                list.push(compiled.map_err(|error| format!("{expression:?}: {error}"))?);
            }
        }
        Ok(filter)
    }

    /// Whether a text has one of the expressions, or there is none, and has none of those that take away. An expression
    /// may match anywhere in the text.
    pub fn matches(&self, text: &str) -> bool {
        (self.included.is_empty() || self.included.iter().any(|one| one.is_match(text)))
            && !self.excluded.iter().any(|one| one.is_match(text))
    }
}

fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for part in text.split(',') {
        let Some(last) = pieces.last_mut() else { continue };
        last.push_str(part);
        match last.strip_suffix('\\') {
            Some(escaped) => *last = format!("{escaped},"),
            None => pieces.push(String::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::{RegexFilter, pieces};

    fn matches(filter: &str, text: &str) -> bool {
        RegexFilter::parse(filter).unwrap().matches(text)
    }

    #[test]
    fn a_filter_includes_and_excludes() {
        let filter = r"//foo.*\.cc,-//foo/bar";
        assert!(matches(filter, "Compiling //foo/a.cc"));
        assert!(!matches(filter, "Compiling //foo/bar/a.cc"));
        assert!(!matches(filter, "Compiling //foo/a.h"));
        assert!(matches("-Link", "Compiling x") && !matches("-Link", "Linking x Link"));
        assert!(matches("+a,b", "xbx") && matches("", "anything"));
        assert!(matches("^Compiling", "Compiling x") && !matches("^ompiling", "Compiling x"));
    }

    #[test]
    fn a_comma_can_be_part_of_an_expression() {
        assert_eq!(pieces(r"a\,b,c"), ["a,b", "c"]);
        assert!(matches(r"a{1\,2}x", "aax"));
    }

    #[test]
    fn what_is_no_expression_or_takes_too_much_is_refused() {
        assert!(RegexFilter::parse("(").unwrap_err().starts_with("\"(\": "));
        assert!(RegexFilter::parse("(?=a)").is_err());
        assert!(RegexFilter::parse(r"((a{1\,200}){1\,200}){1\,200}").is_err());
    }
}
