//! What a metric is called, what it says and how to ask for it. `METRICS.md` and the scrape are both made from this.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry;

/// What our own names begin with.
pub(super) const PREFIX: &str = "pointsman";

/// What its numbers are of; base units only.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Seconds,
    Bytes,
}

impl Unit {
    fn encoded(self) -> registry::Unit {
        match self {
            Self::Seconds => registry::Unit::Seconds,
            Self::Bytes => registry::Unit::Bytes,
        }
    }
}

/// All samples of one name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// What the name begins with.
    pub(super) prefix: &'static str,
    /// Without prefix, unit and `_total`.
    pub(super) name: &'static str,
    pub(super) kind: MetricType,
    pub(super) unit: Option<Unit>,
    pub(super) labels: &'static [&'static str],
    /// One sentence, with its full stop.
    pub(super) help: &'static str,
    /// PromQL that somebody would put on a dashboard or into an alert.
    pub(super) query: &'static str,
}

impl Family {
    pub(super) const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { prefix: PREFIX, name, kind: MetricType::Counter, unit: None, labels: &[], help, query: "" }
    }

    pub(super) const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { kind: MetricType::Gauge, ..Self::counter(name, help) }
    }

    pub(super) const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { kind: MetricType::Histogram, unit: Some(Unit::Seconds), ..Self::counter(name, help) }
    }

    /// Of whatever is no time.
    pub(super) const fn plain_histogram(name: &'static str, help: &'static str) -> Self {
        Self { unit: None, ..Self::histogram(name, help) }
    }

    /// A family of a registry with another prefix.
    pub(super) const fn of(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }

    pub(super) const fn seconds(self) -> Self {
        Self { unit: Some(Unit::Seconds), ..self }
    }

    pub(super) const fn bytes(self) -> Self {
        Self { unit: Some(Unit::Bytes), ..self }
    }

    pub(super) const fn by(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }

    pub(super) const fn ask(self, query: &'static str) -> Self {
        Self { query, ..self }
    }

    /// The whole name, as queries have it; of a histogram without `_bucket`.
    pub(super) fn full_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{}", unit.encoded().as_str())).unwrap_or_default();
        let total = if matches!(self.kind, MetricType::Counter) { "_total" } else { "" };
        format!("{}_{}{unit}{total}", self.prefix, self.name)
    }
}

/// What a sample says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Count(u64),
    Level(f64),
    Histogram { sum: f64, buckets: &'a [(f64, u64)] },
}

/// Writes families.
pub(super) struct Page<'a>(pub(super) DescriptorEncoder<'a>);

impl Page<'_> {
    /// A family without labels.
    pub(super) fn one(&mut self, family: &Family, value: Value<'_>) -> fmt::Result {
        self.each(family, [(&[] as &[&str], value)])
    }

    /// A family whose samples have values for its labels, in their order.
    pub(super) fn each<'v, L: AsRef<[&'v str]>>(
        &mut self,
        family: &Family,
        samples: impl IntoIterator<Item = (L, Value<'v>)>,
    ) -> fmt::Result {
        let unit = family.unit.map(Unit::encoded);
        let mut encoder = self.0.encode_descriptor(family.name, family.help, unit.as_ref(), family.kind)?;
        for (values, value) in samples {
            debug_assert_eq!(values.as_ref().len(), family.labels.len(), "{}", family.name);
            let labels: Vec<(&str, &str)> =
                family.labels.iter().copied().zip(values.as_ref().iter().copied()).collect();
            match labels.is_empty() {
                true => write(&mut encoder, value)?,
                false => write(&mut encoder.encode_family(&labels)?, value)?,
            }
        }
        Ok(())
    }
}

fn write(encoder: &mut MetricEncoder<'_>, value: Value<'_>) -> fmt::Result {
    match value {
        Value::Count(count) => encoder.encode_counter::<NoLabelSet, _, f64>(&count, None),
        Value::Level(level) => encoder.encode_gauge(&level),
        Value::Histogram { sum, buckets } => {
            let count = buckets.iter().map(|(_, n)| n).sum();
            encoder.encode_histogram::<NoLabelSet>(sum, count, buckets, None)
        }
    }
}
