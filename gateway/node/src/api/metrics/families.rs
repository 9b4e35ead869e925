//! Metric families with their rows, as the text format wants them.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, MetricEncoder,
    NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Names and values of a row's labels.
pub type Labels = Vec<(&'static str, String)>;

/// What a family is called, and what its values are in, if that has a name.
pub struct Name<'a> {
    text: &'a str,
    unit: Option<Unit>,
}

impl<'a> From<&'a str> for Name<'a> {
    fn from(text: &'a str) -> Name<'a> {
        Name { text, unit: None }
    }
}

impl<'a> From<(&'a str, Unit)> for Name<'a> {
    fn from((text, unit): (&'a str, Unit)) -> Name<'a> {
        let unit = Some(unit);
        Name { text, unit }
    }
}

/// The unit of a rate, which has no name of its own.
pub fn per_second() -> Unit {
    Unit::Other("bytes_per_second".to_owned())
}

/// Writes one family after another.
pub struct Families<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl<'a> Families<'a> {
    pub fn new(encoder: DescriptorEncoder<'a>) -> Families<'a> {
        Families { encoder }
    }

    fn begin<'s>(
        &'s mut self,
        name: &'s Name<'_>,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        let unit = name.unit.as_ref();
        self.encoder.encode_descriptor(name.text, help, unit, kind)
    }

    /// What may rise and fall.
    pub fn gauge<'n, V: EncodeGaugeValue>(
        &mut self,
        name: impl Into<Name<'n>>,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        let name = name.into();
        let mut family = self.begin(&name, help, MetricType::Gauge)?;
        for (labels, value) in rows {
            if labels.is_empty() {
                family.encode_gauge(&value)?;
            } else {
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    /// A value that only grows; its name gets the ending `_total`.
    pub fn counter<'n, V: EncodeCounterValue>(
        &mut self,
        name: impl Into<Name<'n>>,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        let name = name.into();
        let mut family = self.begin(&name, help, MetricType::Counter)?;
        for (labels, value) in rows {
            if labels.is_empty() {
                family.encode_counter::<NoLabelSet, V, f64>(&value, None)?;
            } else {
                let mut row = family.encode_family(&labels)?;
                row.encode_counter::<NoLabelSet, V, f64>(&value, None)?;
            }
        }
        Ok(())
    }

    /// What is counted by size, and sums up by itself.
    pub fn histogram<'n>(
        &mut self,
        name: impl Into<Name<'n>>,
        help: &str,
        histogram: &impl EncodeMetric,
    ) -> fmt::Result {
        let name = name.into();
        histogram.encode(self.begin(&name, help, MetricType::Histogram)?)
    }

    /// Information in labels only; its name gets the ending `_info`.
    pub fn info(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = Labels>,
    ) -> fmt::Result {
        let name = Name::from(name);
        let mut family = self.begin(&name, help, MetricType::Info)?;
        for labels in rows {
            family.encode_info(&labels)?;
        }
        Ok(())
    }
}
