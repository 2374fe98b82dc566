//! Where in a configuration something is: `schedulers[0].simple.worker_match_logging_interval_s`.

use std::fmt;

/// One step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Key(String),
    Index(usize),
}

/// The steps from the top of the file to a value; no steps mean the whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyPath(pub(super) Vec<Segment>);

impl KeyPath {
    /// A path of plain keys, as the program knows them: `timers.heartbeat`.
    pub(super) fn of(dotted: &str) -> Self {
        Self(dotted.split('.').map(|key| Segment::Key(key.to_owned())).collect())
    }

    /// This path and one key more, which may hold any characters.
    pub(super) fn key(&self, key: &str) -> Self {
        let mut longer = self.clone();
        longer.0.push(Segment::Key(key.to_owned()));
        longer
    }

    /// Puts a step in front: errors learn their path from the inside out.
    pub(super) fn prepend(&mut self, segment: Segment) {
        self.0.insert(0, segment);
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    if position > 0 {
                        f.write_str(".")?;
                    }
                    let plain = !key.is_empty()
                        && !key.starts_with(|c: char| c.is_ascii_digit())
                        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                    if plain { f.write_str(key)? } else { write!(f, "{key:?}")? }
                }
            }
        }
        Ok(())
    }
}
