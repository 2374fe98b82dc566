//! Names of blobs in `ByteStream`:
//!
//! ```text
//! [INSTANCE/]blobs/[FUNCTION/]HASH/SIZE                                               to read
//! [INSTANCE/]compressed-blobs/COMPRESSOR/[FUNCTION/]HASH/SIZE
//! [INSTANCE/]uploads/UUID/blobs/[FUNCTION/]HASH/SIZE[/ANYTHING]                       to write
//! [INSTANCE/]uploads/UUID/compressed-blobs/COMPRESSOR/[FUNCTION/]HASH/SIZE[/ANYTHING]
//! ```
//!
//! The words `blobs`, `compressed-blobs` and `uploads` can't be part of an instance name, so the first of them ends
//! it. FUNCTION is there when the length of the hash does not tell it (`blake3`); elsewhere it is accepted all the same.

use pointsman_proto::rev2::digest_function::Value;
use pointsman_storage::{Digest, DigestError, DigestFunction};
use thiserror::Error;
use tonic::Status;

use super::instance_name;

/// The only compressor served, as names and capabilities have it.
const ZSTD: &str = "zstd";

/// How bytes travel. They are stored uncompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    Identity,
    /// As one or more Zstandard frames.
    Zstd,
}

/// A blob that a client names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceName {
    /// Valid by [`instance_name::validate`].
    pub instance_name: String,
    /// The blob, uncompressed.
    pub digest: Digest,
    /// How its bytes are transferred.
    pub encoding: Encoding,
}

/// An upload that a client names: its own id tells it from others of the same blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadName {
    /// Chosen by the client.
    pub id: uuid::Uuid,
    /// What is uploaded.
    pub blob: ResourceName,
}

/// Why a resource name can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum Problem {
    #[error("it holds none of the segments {0}")]
    NoKeyword(&'static str),
    #[error("it ends where {0} should follow")]
    Ends(&'static str),
    #[error("{found:?} stands where {wanted} should")]
    Unexpected { found: String, wanted: &'static str },
    #[error("upload id {0:?} is no UUID")]
    NoUuid(String),
    #[error("compressor {0:?} is not served; served: {ZSTD}")]
    Compressor(String),
    #[error("size {0:?} is no decimal number of bytes")]
    Size(String),
    #[error("{0:?} follows the size, where a name to read ends")]
    Trailing(String),
    #[error(transparent)]
    Digest(#[from] DigestError),
    #[error("{0}")]
    InstanceName(String),
}

/// Reads the name of a blob to read.
///
/// # Errors
/// `INVALID_ARGUMENT` that says what is wrong.
pub fn parse_read(name: &str) -> Result<ResourceName, Status> {
    read(name).map_err(|problem| invalid(name, &problem))
}

/// Reads the name of a blob to write.
///
/// # Errors
/// `INVALID_ARGUMENT` that says what is wrong.
pub fn parse_write(name: &str) -> Result<UploadName, Status> {
    write(name).map_err(|problem| invalid(name, &problem))
}

fn invalid(name: &str, problem: &Problem) -> Status {
    let shown: String = name.chars().take(300).collect();
    Status::invalid_argument(format!("resource name {shown:?} is wrong: {problem}"))
}

fn read(name: &str) -> Result<ResourceName, Problem> {
    const KEYWORDS: [&str; 2] = ["blobs", "compressed-blobs"];
    let keyword = |segment: &&str| KEYWORDS.contains(segment);
    let (instance_name, rest) = split(name, keyword, "blobs or compressed-blobs")?;
    let mut segments = rest.split('/');
    let (digest, encoding) = blob(&mut segments)?;
    match segments.next() {
        None => Ok(ResourceName { instance_name, digest, encoding }),
        Some(more) => Err(Problem::Trailing(more.to_owned())),
    }
}

fn write(name: &str) -> Result<UploadName, Problem> {
    let (instance_name, rest) = split(name, |segment| *segment == "uploads", "uploads")?;
    let mut segments = rest.split('/').skip(1);
    let id = segments.next().ok_or(Problem::Ends("an upload id"))?;
    let id = uuid::Uuid::try_parse(id).map_err(|_| Problem::NoUuid(id.to_owned()))?;
    // What follows the size is the client's own business (REv2: optional metadata that servers may ignore).
    let (digest, encoding) = blob(&mut segments)?;
    Ok(UploadName { id, blob: ResourceName { instance_name, digest, encoding } })
}

/// Cuts a name before the first segment that is a keyword.
fn split<'a>(
    name: &'a str,
    keyword: impl Fn(&&str) -> bool,
    wanted: &'static str,
) -> Result<(String, &'a str), Problem> {
    let mut start = 0;
    for segment in name.split('/') {
        if keyword(&segment) {
            let instance = name[..start].strip_suffix('/').unwrap_or_default();
            // A slash with nothing before it: "/blobs/...".
            let instance = if start == 1 { "/" } else { instance };
            instance_name::validate(instance)
                .map_err(|status| Problem::InstanceName(status.message().to_owned()))?;
            return Ok((instance.to_owned(), &name[start..]));
        }
        start += segment.len() + 1;
    }
    Err(Problem::NoKeyword(wanted))
}

/// Reads `blobs/...` or `compressed-blobs/...` up to the size.
fn blob<'a>(segments: &mut impl Iterator<Item = &'a str>) -> Result<(Digest, Encoding), Problem> {
    let encoding = match segments.next().ok_or(Problem::Ends("blobs or compressed-blobs"))? {
        "blobs" => Encoding::Identity,
        "compressed-blobs" => match segments.next().ok_or(Problem::Ends("a compressor"))? {
            ZSTD => Encoding::Zstd,
            other => return Err(Problem::Compressor(other.to_owned())),
        },
        other => {
            let wanted = "blobs or compressed-blobs";
            return Err(Problem::Unexpected { found: other.to_owned(), wanted });
        }
    };
    let mut hash = segments.next().ok_or(Problem::Ends("a hash"))?;
    let mut function = None;
    if let Some(named) = named_function(hash) {
        function = Some(DigestFunction::of_value(named)?);
        hash = segments.next().ok_or(Problem::Ends("a hash"))?;
    }
    let size = segments.next().ok_or(Problem::Ends("a size"))?;
    // Digits only: the standard parser takes a plus sign as well.
    let digits = size.bytes().all(|byte| byte.is_ascii_digit());
    let bytes = size.parse::<i64>().ok().filter(|_| digits);
    let bytes = bytes.ok_or_else(|| Problem::Size(size.to_owned()))?;
    Ok((Digest::new(function, hash, bytes)?, encoding))
}

/// The digest function that a segment names, served or not; `None` when it is anything else.
fn named_function(segment: &str) -> Option<Value> {
    // No hash is as short as a name is long, and no name has digits only.
    if segment.len() > 20 || segment.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    Value::from_str_name(&segment.to_ascii_uppercase()).filter(|value| *value != Value::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const ID: &str = "6a5fe9d0-93ab-4f54-a3a5-6d5f1ad6a9b7";

    /// `H` and `U` stand for the hash and the upload id.
    fn fill(pattern: &str) -> String {
        pattern
            .split('/')
            .map(|s| {
                if s == "H" {
                    HASH
                } else if s == "U" {
                    ID
                } else {
                    s
                }
            })
            .collect::<Vec<_>>()
            .join("/")
    }

    fn named(instance_name: &str, encoding: Encoding) -> ResourceName {
        let digest = format!("{HASH}/3").parse().unwrap();
        ResourceName { instance_name: instance_name.to_owned(), digest, encoding }
    }

    #[test]
    fn reads_every_form() {
        use Encoding::{Identity, Zstd};
        for (pattern, instance, encoding) in [
            ("blobs/H/3", "", Identity),
            ("a/b/blobs/H/3", "a/b", Identity),
            ("blobs/sha256/H/3", "", Identity),
            ("compressed-blobs/zstd/H/3", "", Zstd),
            ("main/compressed-blobs/zstd/sha256/H/3", "main", Zstd),
        ] {
            assert_eq!(parse_read(&fill(pattern)).unwrap(), named(instance, encoding), "{pattern}");
        }
        for (pattern, instance, encoding) in [
            ("uploads/U/blobs/H/3", "", Identity),
            ("a/b/uploads/U/blobs/H/3", "a/b", Identity),
            ("uploads/U/blobs/H/3/some/file.txt", "", Identity),
            ("uploads/U/blobs/H/3/", "", Identity),
            ("uploads/U/compressed-blobs/zstd/H/3", "", Zstd),
            ("x/uploads/U/compressed-blobs/zstd/H/3/blobs", "x", Zstd),
        ] {
            let name = parse_write(&fill(pattern)).unwrap();
            assert_eq!(
                (name.id.to_string().as_str(), name.blob),
                (ID, named(instance, encoding)),
                "{pattern}"
            );
        }
    }

    #[test]
    fn the_function_is_named_or_told_by_the_length() {
        for function in DigestFunction::SERVED {
            let digest = Digest::of(*function, b"abc");
            for name in [digest.path(), format!("blobs/{}/{digest}", function.path_name())] {
                assert_eq!(parse_read(&name).unwrap().digest, digest, "{name}");
                assert_eq!(
                    parse_write(&format!("uploads/{ID}/{name}")).unwrap().blob.digest,
                    digest,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn says_what_is_wrong_with_a_name_to_read() {
        for (pattern, expected) in [
            ("", "holds none of the segments blobs"),
            ("H/3", "holds none of the segments blobs"),
            ("blobs", "ends where a hash should follow"),
            ("blobs/H", "ends where a size should follow"),
            ("blobs/H/", "size \"\" is no decimal number"),
            ("blobs/H/-1", "size \"-1\" is no decimal number"),
            ("blobs/H/+1", "size \"+1\" is no decimal number"),
            ("blobs/H/99999999999999999999", "is no decimal number"),
            ("blobs/H/3/x", "\"x\" follows the size"),
            ("blobs/abc/3", "hash \"abc\" has 3 characters"),
            ("blobs/sha256tree/H/3", "digest function SHA256TREE is not served; served: SHA256, SHA1"),
            ("blobs/sha1/H/3", "has 64 characters, a SHA1 hash has 40"),
            ("compressed-blobs/H/3", "is not served; served: zstd"),
            ("compressed-blobs/deflate/H/3", "compressor \"deflate\" is not served"),
            ("compressed-blobs/identity/H/3", "compressor \"identity\" is not served"),
            ("/blobs/H/3", "begins or ends with a slash"),
            ("a//blobs/H/3", "begins or ends with a slash"),
            ("/a/blobs/H/3", "begins or ends with a slash"),
            ("uploads/U/blobs/H/3", "holds \"uploads\""),
        ] {
            let status = parse_read(&fill(pattern)).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(status.message().contains(expected), "{pattern}: {}", status.message());
        }
    }

    #[test]
    fn says_what_is_wrong_with_a_name_to_write() {
        for (pattern, expected) in [
            ("blobs/H/3", "holds none of the segments uploads"),
            ("uploads", "ends where an upload id should follow"),
            ("uploads/U", "ends where blobs or compressed-blobs should follow"),
            ("uploads/1234/blobs/H/3", "upload id \"1234\" is no UUID"),
            ("uploads/U/blob/H/3", "\"blob\" stands where blobs"),
            ("uploads/U/blobs/H", "ends where a size should follow"),
            ("blobs/uploads/U/blobs/H/3", "holds \"blobs\""),
        ] {
            let status = parse_write(&fill(pattern)).unwrap_err();
            assert!(status.message().contains(expected), "{pattern}: {}", status.message());
        }
    }

    #[test]
    fn a_huge_name_makes_no_huge_error() {
        assert!(parse_read(&"ü".repeat(100_000)).unwrap_err().message().len() < 1000);
        let name = format!("blobs/{}/3", "a".repeat(100_000));
        assert!(parse_read(&name).unwrap_err().message().len() < 1000);
    }
}
