//! What is wrong with a digest.

use thiserror::Error;

use crate::function::DigestFunction;

/// What is wrong with a digest that somebody sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DigestError {
    /// The request names a digest function that is not served.
    #[error("digest function {asked} is not served; served: {}", DigestFunction::served_names())]
    FunctionNotServed {
        /// What the request says.
        asked: String,
    },
    /// A digest field that must be set is not.
    #[error("{field} is not set")]
    Unset {
        /// The field's name.
        field: &'static str,
    },
    /// The hash is too long or too short for its function.
    #[error("hash {hash:?} has {length} characters, a {} hash has {}", function.name(), function.hash_digits())]
    HashLength {
        /// The hash as sent, shortened when very long.
        hash: String,
        /// Its length in bytes.
        length: usize,
        /// The function it is read with.
        function: DigestFunction,
    },
    /// No function is named, and none makes hashes of that length.
    #[error("hash {hash:?} has {length} characters, which tells no digest function; served: {}", lengths())]
    NoFunction {
        /// The hash as sent, shortened when very long.
        hash: String,
        /// Its length in bytes.
        length: usize,
    },
    /// The hash has other characters than 0-9 and a-f.
    #[error("hash {hash:?} is not made of lower-case hexadecimal digits")]
    HashNotHex {
        /// The hash as sent, shortened when very long.
        hash: String,
    },
    /// The size is below zero.
    #[error("size {size_bytes} of the blob with hash {hash:?} is negative")]
    NegativeSize {
        /// The hash as sent, shortened when very long.
        hash: String,
        /// The size as sent.
        size_bytes: i64,
    },
    /// A text is not of the form `HASH/SIZE`.
    #[error("{text:?} is not of the form HASH/SIZE")]
    NotHashSize {
        /// The text as given, shortened when very long.
        text: String,
    },
}

/// `SHA256 64, SHA1 40, ...`
fn lengths() -> String {
    let told = DigestFunction::SERVED.iter().filter(|function| function.is_told_by_length());
    told.map(|f| format!("{} {}", f.name(), f.hash_digits())).collect::<Vec<_>>().join(", ")
}
