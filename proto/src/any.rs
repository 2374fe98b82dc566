//! Messages inside `google.protobuf.Any`.
use prost::{DecodeError, Message, Name};
use prost_types::Any;
use std::{error::Error, fmt};

/// Where all type URLs begin; whatever it names is never fetched.
const PREFIX: &str = "type.googleapis.com/";

/// Wraps a message under the type URL `type.googleapis.com/FULL.NAME`, which all REv2 clients expect.
///
/// ```
/// use pointsman_proto::{longrunning::Operation, pack, unpack};
///
/// let any = pack(&Operation { name: "a".into(), ..Default::default() });
/// assert_eq!(any.type_url, "type.googleapis.com/google.longrunning.Operation");
/// assert_eq!(unpack::<Operation>(&any)?.name, "a");
/// # Ok::<(), pointsman_proto::UnpackError>(())
/// ```
pub fn pack<M: Message + Name>(message: &M) -> Any {
    pack_encoded::<M>(message.encode_to_vec())
}

/// Like [`pack`], for a message that is encoded already.
pub fn pack_encoded<M: Name>(message: Vec<u8>) -> Any {
    // Not `format!` with `full_name`: it takes three allocations where one will do.
    let mut type_url = String::with_capacity(PREFIX.len() + M::PACKAGE.len() + 1 + M::NAME.len());
    type_url.extend([PREFIX, M::PACKAGE, ".", M::NAME]);
    Any { type_url, value: message }
}

/// Takes a message out of an `Any`. Only what follows the last slash of the type URL counts, as the
/// definition of `Any` says.
///
/// # Errors
/// [`UnpackError`] when it holds another type or its bytes are not a message of that type.
pub fn unpack<M: Message + Name + Default>(any: &Any) -> Result<M, UnpackError> {
    let held = any.type_url.rsplit('/').next().unwrap_or_default();
    if held != M::full_name() {
        return Err(UnpackError::Type { wanted: M::full_name(), held: any.type_url.clone() });
    }
    M::decode(any.value.as_slice()).map_err(|source| UnpackError::Decode { wanted: M::full_name(), source })
}

/// Why an `Any` did not yield the message that was asked for.
#[derive(Debug)]
pub enum UnpackError {
    /// It holds another type.
    Type {
        /// Full name of the message asked for.
        wanted: String,
        /// Type URL found.
        held: String,
    },
    /// The type is right, the bytes are not.
    Decode {
        /// Full name of the message asked for.
        wanted: String,
        /// What is wrong with the bytes.
        source: DecodeError,
    },
}

impl fmt::Display for UnpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type { wanted, held } => write!(f, "asked for a {wanted} but the `Any` holds {held:?}"),
            Self::Decode { wanted, .. } => write!(f, "the bytes in the `Any` are not a {wanted}"),
        }
    }
}

impl Error for UnpackError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Type { .. } => None,
            Self::Decode { source, .. } => Some(source),
        }
    }
}
