//! Flags of the form `KEY=VALUE`.

use std::collections::BTreeMap;

/// Splits at the first `=`; the value may be empty and may hold further ones.
pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// Gathers the values of each key, in the order given.
pub(super) fn by_key(pairs: Vec<(String, String)>) -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in pairs {
        keys.entry(key).or_default().push(value);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_the_first_sign() {
        assert_eq!(parse_pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(parse_pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(parse_pair("a").is_err());
        assert!(parse_pair("=b").is_err());
    }

    #[test]
    fn a_key_may_come_twice() {
        let pairs =
            [("a", "2"), ("b", "x"), ("a", "1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let keys = by_key(pairs.to_vec());
        assert_eq!(keys["a"], ["2", "1"]);
        assert_eq!(keys["b"], ["x"]);
    }
}
