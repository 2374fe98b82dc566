//! The functions that hashes are computed with.

use pointsman_proto::rev2::digest_function::Value;

use crate::error::DigestError;

/// How a blob's hash is computed. Adding one is adding a variant, a row of [`DigestFunction::row`] and a
/// [`Hasher`](crate::Hasher).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DigestFunction {
    /// SHA-256, the function that every client speaks.
    Sha256,
    /// SHA-1.
    Sha1,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
    /// MD5.
    Md5,
    /// BLAKE3 with 32 bytes of output.
    Blake3,
}

impl DigestFunction {
    /// Every function, the default one first.
    pub const SERVED: &'static [Self] =
        &[Self::Sha256, Self::Sha1, Self::Sha384, Self::Sha512, Self::Md5, Self::Blake3];

    /// The protocol's value, the name in lower case, and the hexadecimal digits of a hash.
    const fn row(self) -> (Value, &'static str, usize) {
        match self {
            Self::Sha256 => (Value::Sha256, "sha256", 64),
            Self::Sha1 => (Value::Sha1, "sha1", 40),
            Self::Sha384 => (Value::Sha384, "sha384", 96),
            Self::Sha512 => (Value::Sha512, "sha512", 128),
            Self::Md5 => (Value::Md5, "md5", 32),
            Self::Blake3 => (Value::Blake3, "blake3", 64),
        }
    }

    /// Reads the `digest_function` field of a request. `None` when it is unset, as old clients and Pants leave it: the
    /// function is then told by the length of the hash.
    ///
    /// # Errors
    /// The function is none of those served.
    pub fn from_proto(value: i32) -> Result<Option<Self>, DigestError> {
        match Value::try_from(value) {
            Ok(Value::Unknown) => Ok(None),
            Ok(named) => Self::of_value(named).map(Some),
            Err(_) => Err(DigestError::FunctionNotServed { asked: format!("number {value}") }),
        }
    }

    /// The function of that value.
    ///
    /// # Errors
    /// It is none of those served.
    pub fn of_value(value: Value) -> Result<Self, DigestError> {
        let found = Self::SERVED.iter().find(|function| function.to_proto() == value);
        found.copied().ok_or_else(|| DigestError::FunctionNotServed { asked: value.as_str_name().to_owned() })
    }

    /// The function whose hashes have so many hexadecimal digits. REv2 gives each length to one function; the others
    /// have to be named.
    pub fn of_length(hash_digits: usize) -> Option<Self> {
        Self::SERVED.iter().copied().find(|function| function.hash_digits() == hash_digits)
    }

    /// The protocol's value for this function.
    pub fn to_proto(self) -> Value {
        self.row().0
    }

    /// The name in capitals, as the protocol's enum has it.
    pub fn name(self) -> &'static str {
        self.to_proto().as_str_name()
    }

    /// The name in lower case, as resource names and the embedded store's folders have it.
    pub fn path_name(self) -> &'static str {
        self.row().1
    }

    /// Hexadecimal digits of a hash.
    pub fn hash_digits(self) -> usize {
        self.row().2
    }

    /// Whether a hash tells by its length that this function made it. Resource names have the name of the others.
    pub fn is_told_by_length(self) -> bool {
        Self::of_length(self.hash_digits()) == Some(self)
    }

    /// The names of all functions that are served, for error texts.
    pub fn served_names() -> String {
        Self::SERVED.iter().map(|function| function.name()).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_refuses_those_not_served() {
        assert_eq!(DigestFunction::from_proto(0), Ok(None));
        for function in DigestFunction::SERVED {
            assert_eq!(DigestFunction::from_proto(function.to_proto().into()), Ok(Some(*function)));
        }
        for (value, asked) in [(Value::Sha256tree as i32, "SHA256TREE"), (77, "number 77")] {
            assert_eq!(
                DigestFunction::from_proto(value).unwrap_err().to_string(),
                format!(
                    "digest function {asked} is not served; served: SHA256, SHA1, SHA384, SHA512, MD5, BLAKE3"
                )
            );
        }
    }

    #[test]
    fn a_length_has_one_function() {
        use DigestFunction::*;
        for (digits, function) in
            [(32, Some(Md5)), (40, Some(Sha1)), (64, Some(Sha256)), (96, Some(Sha384)), (128, Some(Sha512))]
        {
            assert_eq!(DigestFunction::of_length(digits), function);
        }
        assert_eq!(DigestFunction::of_length(63), None);
        let named: Vec<_> = DigestFunction::SERVED.iter().filter(|f| !f.is_told_by_length()).collect();
        assert_eq!(named, [&Blake3]);
    }
}
