//! A record as a line of JSON.
//!
//! A later version may add fields: what is missing is as if it was never seen, and what is not known is passed over. One that
//! can't be read by this one says so by its number.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::record::{CLASSES_MAX, ClassCount, Record};
use crate::statistics::KEY_BYTES_MAX;

/// Number of the form that [`encode`] writes. Grows when older programs can't read what newer ones write.
pub const FORMAT: u32 = 1;

/// Why a line is no record.
#[derive(Debug, thiserror::Error)]
pub enum BrokenRecord {
    /// It is not JSON of the form.
    #[error("it can't be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A newer program wrote it.
    #[error("it is of form {0}, and this program reads forms up to {FORMAT}: a newer program wrote it")]
    Newer(u32),
    /// It contradicts itself.
    #[error("{0}")]
    Wrong(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    format: u32,
    #[serde(borrow)]
    key: std::borrow::Cow<'a, str>,
    #[serde(default)]
    first: u32,
    #[serde(default)]
    last: u32,
    #[serde(default)]
    runs: u32,
    #[serde(default)]
    failed: u32,
    #[serde(default)]
    killed: u32,
    #[serde(default)]
    timed_out: u32,
    #[serde(default)]
    wall_total_s: f64,
    #[serde(default)]
    remembered: u8,
    #[serde(default)]
    cpu_s: f32,
    #[serde(default)]
    measured_s: f32,
    #[serde(default)]
    peak_mib: u32,
    /// Pairs of bucket and count.
    #[serde(default)]
    walls: Vec<(u8, u8)>,
    #[serde(default)]
    cores: Vec<(u8, u8)>,
    #[serde(default)]
    memories: Vec<(u8, u8)>,
    #[serde(default)]
    classes: Vec<Class>,
}

#[derive(Serialize, Deserialize)]
struct Class {
    size_class: u32,
    #[serde(default)]
    runs: u32,
    #[serde(default)]
    killed: u8,
    #[serde(default)]
    timed_out: u8,
    #[serde(default)]
    last_bad: u32,
    #[serde(default)]
    last: u32,
}

/// A record as one line, without its end.
pub fn encode(key: &str, record: &Record) -> String {
    let class = |c: ClassCount| Class {
        size_class: c.size_class,
        runs: c.runs,
        killed: c.killed,
        timed_out: c.timed_out,
        last_bad: c.last_bad,
        last: c.last,
    };
    let line = Line {
        format: FORMAT,
        key: key.into(),
        first: record.first,
        last: record.last,
        runs: record.runs,
        failed: record.failed,
        killed: record.killed,
        timed_out: record.timed_out,
        wall_total_s: record.wall_total_s,
        remembered: record.remembered,
        cpu_s: record.cpu_s,
        measured_s: record.measured_s,
        peak_mib: record.peak_mib,
        walls: record.walls.buckets(),
        cores: record.cores.buckets(),
        memories: record.memories.buckets(),
        classes: record.classes().into_iter().map(class).collect(),
    };
    // Numbers, a text and lists of those: there is nothing that JSON could refuse.
    serde_json::to_string(&line).unwrap_or_default()
}

/// The key and the record of a line.
///
/// # Errors
/// The line is no record, or one of a newer form.
pub fn decode(line: &str) -> Result<(String, Record), BrokenRecord> {
    #[derive(Deserialize)]
    struct Form {
        format: u32,
    }
    let Form { format } = serde_json::from_str(line)?;
    if format > FORMAT {
        return Err(BrokenRecord::Newer(format));
    }
    let line: Line<'_> = serde_json::from_str(line)?;
    if line.key.is_empty() || line.key.len() > KEY_BYTES_MAX {
        return Err(BrokenRecord::Wrong("its key is empty or longer than 512 bytes"));
    }
    if line.runs == 0 {
        return Err(BrokenRecord::Wrong("it has no runs"));
    }
    let finite = |number: f64| number.is_finite() && number >= 0.0;
    if ![line.wall_total_s, line.cpu_s.into(), line.measured_s.into()].into_iter().all(finite) {
        return Err(BrokenRecord::Wrong("a time in it is negative or no number"));
    }
    let mut classes = [ClassCount::default(); CLASSES_MAX];
    for (place, c) in classes.iter_mut().zip(line.classes) {
        *place = ClassCount {
            size_class: c.size_class,
            runs: c.runs,
            killed: c.killed,
            timed_out: c.timed_out,
            last_bad: c.last_bad,
            last: c.last,
        };
    }
    let record = Record {
        walls: Histogram::of(&line.walls),
        cores: Histogram::of(&line.cores),
        memories: Histogram::of(&line.memories),
        classes,
        remembered: line.remembered,
        cpu_s: line.cpu_s,
        measured_s: line.measured_s,
        peak_mib: line.peak_mib,
        runs: line.runs,
        failed: line.failed,
        killed: line.killed,
        timed_out: line.timed_out,
        wall_total_s: line.wall_total_s,
        first: line.first,
        last: line.last,
    };
    Ok((line.key.into_owned(), record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::ran;
    use crate::record::{Ended, Run};

    fn sample() -> Record {
        let mut record = Record::default();
        for i in 0..700_u32 {
            record.note(&ran(0.1 * f64::from(i + 1), 0.3 + f64::from(i % 7), 50 * (1 + i % 40)), 1000 + i);
        }
        for class in [0, 1, 4] {
            record.note(&Run { ended: Ended::Killed, size_class: class, ..ran(1.0, 1.0, 1) }, 2000);
        }
        record
    }

    #[test]
    fn what_is_written_is_read() {
        let key = "//a:b \"CppCompile\"\n\u{1f}é";
        let line = encode(key, &sample());
        assert!(!line.contains('\n') && line.len() < 1500, "{} bytes: {line}", line.len());
        let (read_key, read) = decode(&line).unwrap();
        assert_eq!(read_key, key);
        // Places of classes may differ.
        assert_eq!(read.classes(), sample().classes());
        assert_eq!(Record { classes: sample().classes, ..read }, sample());
    }

    #[test]
    fn fields_may_come_and_go() {
        let (key, least) = decode(r#"{"format":1,"key":"k","runs":3}"#).unwrap();
        assert_eq!((key.as_str(), least.attempts(), least.wall(0.5)), ("k", (3, 0), None));
        let more = encode("k", &sample()).replacen('{', r#"{"gpu_s":[1,2,{"a":null}],"#, 1);
        assert_eq!(decode(&more).unwrap().1.attempts(), sample().attempts());
    }

    #[test]
    fn what_is_broken_is_told() {
        let whole = encode("k", &sample());
        for (line, why) in [
            (whole[..whole.len() / 2].to_owned(), "can't be read"),
            (String::new(), "can't be read"),
            (whole.replace("\"runs\":703", "\"runs\":-1"), "can't be read"),
            (whole.replace("\"format\":1", "\"format\":7"), "form 7"),
            (whole.replace("\"k\"", "\"\""), "its key"),
            (r#"{"format":1,"key":"k"}"#.to_owned(), "no runs"),
            (r#"{"format":1,"key":"k","runs":1,"wall_total_s":-1}"#.to_owned(), "negative"),
        ] {
            let error = decode(&line).unwrap_err().to_string();
            assert!(error.contains(why), "{line}: {error}");
        }
        let beyond = r#"{"format":1,"key":"k","runs":1,"cores":[[255,255],[3,9]],"remembered":255}"#;
        let (_, mut beyond) = decode(beyond).unwrap();
        (0..600).for_each(|_| beyond.note(&ran(1.0, 1.0, 1), 1));
        assert!(beyond.measured() <= 255);
    }
}
