//! Lines of the file: a checksum of eight digits, and a record.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use pointsman_learning::{Record, decode, encode};
use sha2::{Digest as _, Sha256};

/// No record is as long.
const LINE_MAX: usize = 64 << 10;
/// So many broken lines are told one by one.
const TOLD_MAX: u64 = 10;

/// A record as a line of the file.
pub(super) fn line(key: &str, record: &Record) -> Vec<u8> {
    let text = encode(key, record);
    format!("{} {text}\n", checksum(text.as_bytes())).into_bytes()
}

pub(super) fn checksum(text: &[u8]) -> String {
    Sha256::digest(text)[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Records by key, each with the bytes of its line.
pub(super) type Records = HashMap<String, (Record, u64)>;

/// What is in a file.
pub(super) struct Content {
    /// The last one of each key.
    pub(super) records: Records,
    /// So many lines were none.
    pub(super) broken: u64,
    /// They were more than the end of one that a server died over.
    pub(super) keep: bool,
}

/// Reads all of a file. Lines that are no records are told of in the log.
pub(super) fn read(file: File, path: &Path) -> io::Result<Content> {
    let (mut records, mut broken, mut keep, mut number) = (Records::new(), 0, false, 0_u64);
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    loop {
        text.clear();
        if reader.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        number += 1;
        match whole(&text) {
            Ok((key, record)) => _ = records.insert(key, (record, text.len() as u64)),
            Err(why) => {
                broken += 1;
                keep |= text.ends_with(b"\n");
                if broken <= TOLD_MAX {
                    tracing::warn!(file = %path.display(), line = number, why, "a record of what was learned is dropped");
                }
            }
        }
    }
    if broken > TOLD_MAX {
        tracing::warn!(file = %path.display(), broken, "more records of what was learned were dropped");
    }
    Ok(Content { records, broken, keep })
}

fn whole(text: &[u8]) -> Result<(String, Record), String> {
    let text = text.strip_suffix(b"\n").ok_or("it was not written to its end")?;
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let (sum, text) = text.split_once(' ').ok_or("it has no checksum")?;
    if sum != checksum(text.as_bytes()) {
        return Err("it is not what was written".to_owned());
    }
    decode(text).map_err(|error| error.to_string())
}
