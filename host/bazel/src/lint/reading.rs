//! What Bazel reads otherwise than it is written.

use super::{Finding, Severity};
use crate::flags::{self, BadValue};
use crate::rc::{Oddity, OddityKind, Rc, RcLine, is_known, takes_build_options};

/// Oddities, sections that are none, and options in sections that don't take them.
pub(super) fn findings(rc: &Rc) -> Vec<Finding> {
    let odd = rc.oddities.iter().filter_map(odd);
    odd.chain(rc.lines.iter().flat_map(section)).collect()
}

fn odd(oddity: &Oddity) -> Option<Finding> {
    let (code, what, why, advice) = match &oddity.kind {
        OddityKind::OpenQuote => (
            "open-quote",
            "a quote is not closed".to_owned(),
            "Bazel closes it at the end of the line without a word, so all that follows is one word".to_owned(),
            "close the quote".to_owned(),
        ),
        OddityKind::CommentInWord => (
            "comment-in-word",
            "# in the middle of a word begins a comment".to_owned(),
            "Bazel drops the rest of the word and of the line".to_owned(),
            "put the word in quotes, or a space before the #".to_owned(),
        ),
        OddityKind::CommentContinues(line) => (
            "comment-continues",
            format!("the comment ends in a backslash, so line {line} is part of it"),
            "a backslash joins lines before comments are looked for".to_owned(),
            "take the backslash out, or move the comment to a line of its own".to_owned(),
        ),
        OddityKind::RelativeImport(path) => (
            "relative-import",
            format!("the import {path:?} is relative"),
            "Bazel looks for it from the folder that it is started in; here it was looked for from the workspace".to_owned(),
            format!("write %workspace%/{path}"),
        ),
        // It is what try-import is for.
        OddityKind::SkippedImport(_) => return None,
    };
    Some(Finding { place: Some(oddity.place.clone()), severity: Severity::Warning, code, what, why, advice })
}

fn section(line: &RcLine) -> Vec<Finding> {
    let name = &line.section;
    if !is_known(name) {
        return vec![Finding {
            place: Some(line.place.clone()),
            severity: Severity::Warning,
            code: "unknown-section",
            what: format!("{name:?} is no command of Bazel"),
            why: "Bazel skips the line with a warning".to_owned(),
            advice: "begin the line with a command such as build, test or common".to_owned(),
        }];
    }
    if takes_build_options(name) {
        return Vec::new();
    }
    let misplaced = line.words.iter().filter_map(|word| Some((word, flags::name(&word.text)?)));
    misplaced
        .map(|(word, flag)| Finding {
            place: Some(word.place.clone()),
            severity: Severity::Error,
            code: "wrong-section",
            what: format!("--{flag} stands in the section {name}"),
            why: format!("it is an option of commands that build, so `bazel {name}` refuses it, and builds don't see it"),
            advice: "move it to the section build".to_owned(),
        })
        .collect()
}

/// A value that is none.
pub(super) fn refused(bad: BadValue) -> Finding {
    Finding {
        place: Some(bad.place),
        severity: Severity::Error,
        code: "bad-value",
        what: format!("{} can't be read", bad.what),
        why: bad.why.to_owned(),
        advice: format!("write {}", bad.form),
    }
}
