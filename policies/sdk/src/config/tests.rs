//! Every mistake is told with its place.

use super::*;

#[test]
fn every_error_is_told_with_its_place() {
    let mut config =
        Config::parse(r#"{"a": 1, "list": ["x", 2], "nmae": "n", "map": {"k": null}, "we/ird": 0}"#).unwrap();
    assert!(config.bool("a", true));
    assert_eq!(config.strings("list"), Some(vec!["x".to_owned()]));
    assert_eq!(config.string("name"), None);
    assert_eq!(config.string_map("map"), Some(BTreeMap::new()));
    let errors = config.finish().unwrap_err();
    let seen: Vec<(&str, &str)> = errors.iter().map(|e| (&*e.path, &*e.message)).collect();
    assert_eq!(
        seen,
        [
            ("/a", "expected true or false, found a number"),
            ("/list/1", "expected a string, found a number"),
            ("/map/k", "expected a string, found null"),
            ("/nmae", "unknown key \"nmae\": did you mean \"name\"?"),
            ("/we~1ird", "unknown key \"we/ird\": known keys are a, list, name, map"),
        ]
    );
}

#[test]
fn objects_inside_are_read_likewise() {
    let text = r#"{
        "one": { "wait": "90s", "level": "hgih", "x": 1 },
        "many": [{ "n": 5 }, 3, { "n": 11 }],
        "named": { "a/b": { "wait": "soon" } }
    }"#;
    let mut config = Config::parse(text).unwrap();
    let mut one = config.object("one").unwrap();
    assert_eq!(one.duration_ms("wait"), Some(90_000));
    assert_eq!(one.word("level", &[("low", 1), ("high", 2)]), None);
    config.close(one);
    for mut item in config.objects("many").unwrap() {
        item.integer("n", 1..=10);
        config.close(item);
    }
    for (name, mut item) in config.object_map("named").unwrap() {
        assert_eq!(name, "a/b");
        item.duration_ms("wait");
        config.close(item);
    }
    let errors = config.finish().unwrap_err();
    let seen: Vec<(&str, &str)> = errors.iter().map(|e| (&*e.path, &*e.message)).collect();
    assert_eq!(
        seen,
        [
            ("/one/level", "unknown word \"hgih\"; did you mean \"high\"?"),
            ("/one/x", "unknown key \"x\": known keys are wait, level"),
            ("/many/1", "expected an object, found a number"),
            ("/many/2/n", "expected a whole number from 1 to 10, found 11"),
            (
                "/named/a~1b/wait",
                "expected a time such as \"500ms\", \"10s\", \"5min\" or \"2h\", found \"soon\""
            ),
        ]
    );
}

#[test]
fn empty_names_are_no_names() {
    let text = r#"{ "a": "", "b": "x", "list": ["y", ""] }"#;
    let mut config = Config::parse(text).unwrap();
    assert_eq!((config.name("a"), config.name("b")), (None, Some("x".to_owned())));
    assert_eq!(config.names("list"), Some(vec!["y".to_owned()]));
    let paths: Vec<String> = config.finish().unwrap_err().into_iter().map(|error| error.path).collect();
    assert_eq!(paths, ["/a", "/list/1"]);
}

#[test]
fn times_have_units_and_a_limit() {
    let read = [("0s", Some(0)), ("3 min", Some(180_000)), ("2h", Some(7_200_000)), ("5", None)];
    for (text, ms) in read.into_iter().chain([("s", None), ("1200h", None), ("1d", None)]) {
        assert_eq!(duration_ms(text), ms, "{text}");
    }
}

#[test]
fn only_objects_are_configurations() {
    assert_eq!(Config::parse("[]").unwrap_err()[0].message, "expected an object, found a list");
    assert!(Config::parse("{").unwrap_err()[0].message.starts_with("not JSON: "));
    Config::parse(" ").unwrap().finish().unwrap();
}
