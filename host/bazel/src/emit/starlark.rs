//! Values and calls in Starlark, in the form that buildifier leaves as it is.

use std::fmt::Write as _;

/// A string in quotes.
pub(super) fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A list, each item on a line of its own, within a call.
pub(super) fn list(items: &[impl AsRef<str>]) -> String {
    match items {
        [one] => format!("[{}]", string(one.as_ref())),
        _ => block('[', ']', items.iter().map(|item| string(item.as_ref()))),
    }
}

/// A dictionary, likewise.
pub(super) fn dict(entries: &[(String, String)]) -> String {
    block('{', '}', entries.iter().map(|(key, value)| format!("{}: {}", string(key), string(value))))
}

fn block(open: char, close: char, items: impl Iterator<Item = String>) -> String {
    let lines: String = items.map(|item| format!("        {item},\n")).collect();
    if lines.is_empty() { format!("{open}{close}") } else { format!("{open}\n{lines}    {close}") }
}

/// A call with named arguments, whose values are Starlark.
pub(super) fn call(rule: &str, arguments: &[(&str, String)]) -> String {
    let mut text = format!("{rule}(\n");
    for (name, value) in arguments {
        // Writing to a String does not fail.
        let _ = writeln!(text, "    {name} = {value},");
    }
    text.push_str(")\n");
    text
}

/// Lines as a comment.
pub(super) fn comment(text: &str) -> String {
    text.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::{call, dict, list, string};

    #[test]
    fn text_is_quoted() {
        assert_eq!(string("a\"b\\c\nd"), r#""a\"b\\c\nd""#);
    }

    #[test]
    fn calls_look_as_buildifier_leaves_them() {
        let entries = [("k".to_owned(), "v".to_owned())];
        let text = call(
            "platform",
            &[("name", string("a")), ("x", list(&["one"])), ("y", list(&["1", "2"])), ("z", dict(&entries))],
        );
        let wanted = "platform(\n    name = \"a\",\n    x = [\"one\"],\n    y = [\n        \"1\",\n        \"2\",\n    ],\n    z = {\n        \"k\": \
                      \"v\",\n    },\n)\n";
        assert_eq!(text, wanted);
    }
}
