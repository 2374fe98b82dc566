//! The file's form: lines of JSON in zstd frames, each of which can be read by itself. `zstd -dc FILE` reads it, too.
//!
//! A process that is killed while it writes leaves half a frame, which may be followed by others.

use std::io::{self, Read, Write};

use zstd::zstd_safe::{self, MAGICNUMBER};

/// Fast, and a fifth of the size.
const LEVEL: i32 = 3;

/// Lines as a frame.
pub(super) fn compress(lines: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::with_capacity(lines.len() / 4), LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.write_all(lines)?;
    encoder.finish()
}

/// A part of a file that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins.
    pub offset: usize,
    /// How many bytes it has.
    pub bytes: usize,
    /// What is wrong.
    pub text: String,
}

/// Hands over every line that can be read, in order, and says what can't be. Text that is not compressed is taken as it
/// is.
pub fn read(file: &[u8], mut line: impl FnMut(&str)) -> Vec<Damage> {
    let magic = MAGICNUMBER.to_le_bytes();
    if !file.starts_with(&magic) && file.first() == Some(&b'{') {
        lines(file, &mut line);
        return Vec::new();
    }
    let mut damages = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let (text, error) = decompress(&file[at..]);
        let length = zstd_safe::find_frame_compressed_size(&file[at..]);
        match (error, length) {
            (None, Ok(length)) => {
                lines(&text, &mut line);
                at += length;
            }
            (error, _) => {
                // Of half a frame, the whole lines.
                let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                lines(&text[..whole], &mut line);
                let next = file[at + 1..].windows(magic.len()).position(|window| window == magic);
                let end = next.map_or(file.len(), |next| at + 1 + next);
                let text = error.unwrap_or_else(|| "it is no zstd frame".to_owned());
                damages.push(Damage { offset: at, bytes: end - at, text });
                at = end;
            }
        }
    }
    damages
}

/// What the first frame holds, as far as it can be read, and why no further.
fn decompress(frames: &[u8]) -> (Vec<u8>, Option<String>) {
    let mut text = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(frames);
    let result = decoder.and_then(|decoder| decoder.single_frame().read_to_end(&mut text));
    (text, result.err().map(|error| error.to_string()))
}

fn lines(text: &[u8], line: &mut impl FnMut(&str)) {
    String::from_utf8_lossy(text).lines().filter(|text| !text.is_empty()).for_each(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(file: &[u8]) -> (Vec<String>, Vec<Damage>) {
        let mut found = Vec::new();
        let damages = read(file, |line| found.push(line.to_owned()));
        (found, damages)
    }

    #[test]
    fn frames_are_read_one_after_the_other() {
        let file = [compress(b"{\"a\":1}\n{\"b\":2}\n").unwrap(), compress(b"{\"c\":3}\n").unwrap()].concat();
        assert_eq!(all(&file), (vec!["{\"a\":1}".into(), "{\"b\":2}".into(), "{\"c\":3}".into()], vec![]));
        assert_eq!(zstd::stream::decode_all(&file[..]).unwrap(), b"{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n");
        assert_eq!(all(b""), (vec![], vec![]));
        assert_eq!(all(b"{}\n{}"), (vec!["{}".into(), "{}".into()], vec![]), "not compressed");
    }

    #[test]
    fn half_a_frame_costs_itself_alone() {
        let (one, two) = (compress(b"{\"one\":1}\n").unwrap(), compress(b"{\"two\":2}\n").unwrap());
        for cut in 1..one.len() {
            let torn_in_the_end = [&two[..], &one[..cut]].concat();
            let (lines, damages) = all(&torn_in_the_end);
            assert_eq!(lines[0], "{\"two\":2}", "{cut}");
            assert_eq!((damages.len(), damages[0].offset), (1, two.len()), "{cut}: {damages:?}");
            let torn_in_between = [&one[..cut], &two[..]].concat();
            let (lines, damages) = all(&torn_in_between);
            assert_eq!(lines.last().map(String::as_str), Some("{\"two\":2}"), "{cut}: {damages:?}");
            assert_eq!(damages.iter().map(|damage| damage.bytes).sum::<usize>(), cut, "{damages:?}");
        }
    }

    #[test]
    fn what_is_something_else_is_said_to_be() {
        let (lines, damages) = all(b"\x7fELF and so on");
        assert_eq!((lines.len(), damages.len(), damages[0].bytes), (0, 1, 14));
    }
}
