//! Metric families with their rows, as the text format wants them.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Names and values of a row's labels.
pub type Labels = Vec<(&'static str, String)>;

/// Writes one family after another.
pub struct Families<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl<'a> Families<'a> {
    pub fn new(encoder: DescriptorEncoder<'a>) -> Families<'a> {
        Families { encoder }
    }

    /// What may rise and fall.
    pub fn gauge<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        rows: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        let mut family = self
            .encoder
            .encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in rows {
            if labels.is_empty() {
                family.encode_gauge(&value)?;
            } else {
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    /// What only grows; its name gets the ending `_total`.
    pub fn counter<V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        rows: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        let mut family = self
            .encoder
            .encode_descriptor(name, help, unit, MetricType::Counter)?;
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
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        histogram: &impl EncodeMetric,
    ) -> fmt::Result {
        let kind = MetricType::Histogram;
        histogram.encode(self.encoder.encode_descriptor(name, help, unit, kind)?)
    }

    /// What is told by labels alone; its name gets the ending `_info`.
    pub fn info(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = Labels>,
    ) -> fmt::Result {
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Info)?;
        for labels in rows {
            family.encode_info(&labels)?;
        }
        Ok(())
    }
}
