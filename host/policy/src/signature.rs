//! Signatures of policy files, as `minisign` and `rsign` make them.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign_verify::{PublicKey, Signature};

/// A key that signs policies.
#[derive(Clone)]
pub struct SigningKey {
    id: String,
    key: PublicKey,
}

/// What whoever signed has signed along: a line of text.
pub type TrustedComment = String;

/// Why a signature does not do. The caller knows what it belongs to and says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// No key.
    #[error(
        "{given:?} is not a public key of minisign; a key is the second line of a .pub file, 56 characters that begin \
         with RW"
    )]
    Key {
        /// What was given for one.
        given: String,
    },
    /// No signature.
    #[error(
        "the signature can't be read; sign with `minisign -S -m FILE`, which writes FILE.minisig, four lines of text"
    )]
    Unreadable,
    /// Signed by somebody else.
    #[error(
        "it is signed with key {found}, trusted are {}; sign with one of those, or add the key to `public_keys`",
        .trusted.join(", ")
    )]
    OtherKey {
        /// Id of the key of the signature.
        found: String,
        /// Ids of trusted keys.
        trusted: Vec<String>,
    },
    /// The signature is of other bytes.
    #[error(
        "the signature by key {key} is not one of these bytes: either they or their signature changed since; sign again"
    )]
    Wrong {
        /// Id of the key.
        key: String,
    },
}

/// Where the signature of a file lies: beside it.
pub fn signature_path(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".minisig");
    path.into()
}

impl PartialEq for SigningKey {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl SigningKey {
    /// Reads a key: the text in base64, or all of a `.pub` file.
    ///
    /// # Errors
    /// When it is no key.
    pub fn parse(text: &str) -> Result<Self, SignatureError> {
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
        let wrong = || SignatureError::Key { given: line.chars().take(100).collect() };
        let key = PublicKey::from_base64(line).map_err(|_| wrong())?;
        let id = key_id(line).ok_or_else(wrong)?;
        Ok(Self { id, key })
    }

    /// The id that `minisign` shows, 16 hex digits.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.id)
    }
}

/// Checks that `signature`, the text of a `.minisig` file, was made of `bytes` with one of the keys.
///
/// # Errors
/// When it was not; with no keys always.
pub fn verify(keys: &[SigningKey], bytes: &[u8], signature: &str) -> Result<TrustedComment, SignatureError> {
    let parsed = Signature::decode(signature).map_err(|_| SignatureError::Unreadable)?;
    let found = signature.lines().nth(1).and_then(key_id).ok_or(SignatureError::Unreadable)?;
    // Ids are short and not signed, so two keys may share one.
    let mut known = keys.iter().filter(|key| key.id == found).peekable();
    if known.peek().is_none() {
        let trusted = keys.iter().map(|key| key.id.clone()).collect();
        return Err(SignatureError::OtherKey { found, trusted });
    }
    // Signatures of the file itself, which old versions make, are as good as those of its hash.
    if known.any(|key| key.key.verify(bytes, &parsed, true).is_ok()) {
        Ok(parsed.trusted_comment().to_owned())
    } else {
        Err(SignatureError::Wrong { key: found })
    }
}

/// Bytes 2 to 10 of keys and signatures alike.
fn key_id(base64: &str) -> Option<String> {
    let bytes = STANDARD.decode(base64.trim()).ok()?;
    let id = bytes.get(2..10)?.try_into().ok()?;
    Some(format!("{:016X}", u64::from_le_bytes(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made for this test by `minisign` 0.10 for Rust; the secret keys are gone.
    const KEY: &str = "RWSdcfpoPdomCv9/AU9Ve2mtYxQiVpKwqk7c5H5MSBZygjEHBQm0J3mj";
    const OTHER_KEY: &str = "RWQzHPbd5iN6+DF8D5n8h7GkD+Bd8/mMB3OcjvQBXsFM2O3zg+mIrDDN";
    const BYTES: &[u8] = b"a policy, as bytes";
    const SIGNATURE: &str = "untrusted comment: signature from a test
RUSdcfpoPdomCmiRlH38xrPzjfF66hiqoeXjaLJU6JTx8s20QGJo3XzesAo/0XDAGmcb5aO+n8z1IJRC1fGimynGzDanyrq7iA0=
trusted comment: policy 1.2.3
Vsbx5jkelC5GKg9fFJGA5pKZVd/8Yp0EsI/te4/XSyq+YhPOO3aRFAUxn5rYTieklQTYTA8NpZEoNCPkEGZsCw==
";
    const OTHER_SIGNATURE: &str = "untrusted comment: signature from a test
RUQzHPbd5iN6+ON+8oVJ4M0WqDOJEZb+9RcoDW1cStswu74LuukL22QfsHt9ZvvGWf1Ij2cQSqSF6xNSZrlWOagHUjIE4w52VgA=
trusted comment: policy 1.2.3
ZirwYC+qZHXWU5QEQddcukKFR3f3VOyaQ80PcIXL+zwMV6kYkDi9j9Ftl17O96LJG0Tq+HPWuxhZeC/U9HOFDw==
";

    fn key(text: &str) -> SigningKey {
        SigningKey::parse(text).unwrap()
    }

    /// A signature of the bytes themselves, as minisign made them before 0.10 and with `-l` still does.
    fn sign_legacy(bytes: &[u8]) -> (SigningKey, String) {
        let pair = ed25519_compact::KeyPair::from_seed(ed25519_compact::Seed::new([7; 32]));
        let id = [1, 2, 3, 4, 5, 6, 7, 8];
        let signature = pair.sk.sign(bytes, None);
        let comment = "by hand";
        let all = pair.sk.sign([&*signature, comment.as_bytes()].concat(), None);
        let public = STANDARD.encode([b"Ed", &id[..], &*pair.pk].concat());
        let signature = STANDARD.encode([b"Ed", &id[..], &*signature].concat());
        let all = STANDARD.encode(*all);
        (key(&public), format!("untrusted comment: x\n{signature}\ntrusted comment: {comment}\n{all}\n"))
    }

    #[test]
    fn signed_by_a_trusted_key() {
        let keys = [key(KEY), key(OTHER_KEY)];
        assert_eq!(verify(&keys, BYTES, SIGNATURE).unwrap(), "policy 1.2.3");
        assert_eq!(verify(&keys, BYTES, OTHER_SIGNATURE).unwrap(), "policy 1.2.3");
        let (legacy, signature) = sign_legacy(BYTES);
        assert_eq!(verify(&[key(KEY), legacy.clone()], BYTES, &signature).unwrap(), "by hand");
        assert!(verify(&[legacy], b"other bytes", &signature).is_err());
    }

    #[test]
    fn signed_by_somebody_else() {
        let error = verify(&[key(KEY)], BYTES, OTHER_SIGNATURE).unwrap_err().to_string();
        assert!(
            error.starts_with("it is signed with key F87A23E6DDF61C33, trusted are 0A26DA3D68FA719D;"),
            "{error}"
        );
        assert!(verify(&[], BYTES, SIGNATURE).is_err());
        // The id of a trusted key over a signature by another.
        let forged = |line: &str| STANDARD.decode(line).unwrap();
        let (mine, theirs) = (SIGNATURE.lines().nth(1).unwrap(), OTHER_SIGNATURE.lines().nth(1).unwrap());
        let line = STANDARD.encode([&forged(mine)[..10], &forged(theirs)[10..]].concat());
        let error = verify(&[key(KEY)], BYTES, &OTHER_SIGNATURE.replace(theirs, &line)).unwrap_err();
        assert_eq!(error, SignatureError::Wrong { key: "0A26DA3D68FA719D".into() });
    }

    #[test]
    fn of_other_bytes() {
        for bytes in [&b"a policy, as Bytes"[..], b"", b"a policy, as bytes\n"] {
            let error = verify(&[key(KEY)], bytes, SIGNATURE).unwrap_err();
            assert_eq!(error, SignatureError::Wrong { key: "0A26DA3D68FA719D".into() });
        }
        let other_comment = SIGNATURE.replace("policy 1.2.3", "policy 1.2.4");
        assert!(verify(&[key(KEY)], BYTES, &other_comment).is_err(), "the comment is signed as well");
    }

    #[test]
    fn nonsense() {
        for text in
            ["", "\n\n\n\n", "RWSdcfpoPdomCv9", KEY, &SIGNATURE[..100], "untrusted comment: x\nAA\nb\nAA"]
        {
            assert_eq!(verify(&[key(KEY)], BYTES, text), Err(SignatureError::Unreadable));
        }
        for text in ["", "RW", "minisign.pub", &KEY[..50], SIGNATURE, &KEY.to_lowercase()] {
            assert!(matches!(SigningKey::parse(text), Err(SignatureError::Key { .. })), "{text}");
        }
        let file = format!("untrusted comment: minisign public key: 0A26DA3D68FA719D\n{KEY}\n");
        assert_eq!(key(&file).id(), "0A26DA3D68FA719D");
        assert_eq!(key(KEY).id(), "0A26DA3D68FA719D");
    }
}
