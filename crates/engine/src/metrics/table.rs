//! The table that declares metrics: one line gives a metric its handle, its help text and its line in docs/metrics.md.
//!
//! ```
//! use kukuri_engine::{metric_label, metric_table, metrics::{Counter, Labelled}};
//!
//! metric_label! {
//!     /// Why a message was dropped.
//!     pub enum Dropped: "reason" { TooLarge = "too_large", Malformed = "malformed" }
//! }
//! metric_table! {
//!     /// Metrics of an example.
//!     pub struct ExampleMetrics {
//!         received: Counter = "kukuri_example_received_total", "Messages received";
//!         dropped: Labelled<Counter, Dropped> = "kukuri_example_dropped_total", "Messages dropped, by reason";
//!     }
//! }
//! let metrics = ExampleMetrics::register();
//! metrics.dropped.of(Dropped::TooLarge).increment(1);
//! assert_eq!(ExampleMetrics::SPECS[1].labels().unwrap().1, ["too_large", "malformed"]);
//! ```
//!
//! Handles are made once, so that counting is one atomic addition. A label has few values; none holds an address or a key.

use std::{collections::BTreeMap, marker::PhantomData};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// The kind of a metric, as Prometheus names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution, in buckets.
    Histogram,
}

impl MetricKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric as it is declared.
#[derive(Clone, Copy)]
pub struct MetricSpec {
    /// Its name at the exporter.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    labels: fn() -> Option<(&'static str, Vec<&'static str>)>,
}

impl MetricSpec {
    /// For [`metric_table!`](crate::metric_table).
    pub const fn of<M: Metric>(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: M::KIND, labels: M::labels }
    }

    /// Its label and the values that label has; no values if they are only known at run time.
    pub fn labels(&self) -> Option<(&'static str, Vec<&'static str>)> {
        (self.labels)()
    }
}

/// A handle, or several, of one metric.
pub trait Metric {
    /// The kind of the metric.
    const KIND: MetricKind;

    /// Makes the handles, at the recorder of the calling thread.
    fn register(name: &'static str, help: &'static str) -> Self;

    /// The label and its values.
    fn labels() -> Option<(&'static str, Vec<&'static str>)> {
        None
    }
}

/// A metric without a label.
pub trait Handle: Metric {
    /// Gives the metric its help text.
    fn describe(name: &'static str, help: &'static str);

    /// Makes the handle for one value of a label.
    fn with_label(name: &'static str, label: &'static str, value: &'static str) -> Self;
}

macro_rules! handle {
    ($handle:ty, $kind:ident, $make:ident, $describe:ident) => {
        impl Metric for $handle {
            const KIND: MetricKind = MetricKind::$kind;

            fn register(name: &'static str, help: &'static str) -> Self {
                Self::describe(name, help);
                $make!(name)
            }
        }

        impl Handle for $handle {
            fn describe(name: &'static str, help: &'static str) {
                metrics::$describe!(name, help);
            }

            fn with_label(name: &'static str, label: &'static str, value: &'static str) -> Self {
                $make!(name, label => value)
            }
        }
    };
}

handle!(Counter, Counter, counter, describe_counter);
handle!(Gauge, Gauge, gauge, describe_gauge);
handle!(Histogram, Histogram, histogram, describe_histogram);

/// The values of a label: see [`metric_label!`](crate::metric_label).
pub trait MetricLabel: Copy + 'static {
    /// The label's name.
    const NAME: &'static str;
    /// All values.
    const ALL: &'static [Self];

    /// The value at the exporter.
    fn value(self) -> &'static str;

    /// The place in [`MetricLabel::ALL`].
    fn index(self) -> usize;
}

/// One handle for each value of a label.
pub struct Labelled<H, L> {
    handles: Box<[H]>,
    label: PhantomData<L>,
}

impl<H: Handle, L: MetricLabel> Labelled<H, L> {
    /// The handle for a value.
    pub fn of(&self, label: L) -> &H {
        &self.handles[label.index()]
    }
}

impl<H: Handle, L: MetricLabel> Metric for Labelled<H, L> {
    const KIND: MetricKind = H::KIND;

    fn register(name: &'static str, help: &'static str) -> Self {
        H::describe(name, help);
        let handles = L::ALL.iter().map(|value| H::with_label(name, L::NAME, value.value())).collect();
        Self { handles, label: PhantomData }
    }

    fn labels() -> Option<(&'static str, Vec<&'static str>)> {
        Some((L::NAME, L::ALL.iter().map(|value| value.value()).collect()))
    }
}

/// The values of a label that several crates share.
pub trait LabelValues: 'static {
    /// The label's name.
    const NAME: &'static str;

    /// All values.
    fn all() -> Vec<&'static str>;
}

/// One handle for each of several [`LabelValues`], found by the value.
pub struct ByValue<H, V> {
    handles: BTreeMap<&'static str, H>,
    values: PhantomData<V>,
}

impl<H: Handle, V: LabelValues> ByValue<H, V> {
    /// The handle for a value; `None` if it is none of [`LabelValues::all`].
    pub fn of(&self, value: &str) -> Option<&H> {
        self.handles.get(value)
    }
}

impl<H: Handle, V: LabelValues> Metric for ByValue<H, V> {
    const KIND: MetricKind = H::KIND;

    fn register(name: &'static str, help: &'static str) -> Self {
        H::describe(name, help);
        let handles = V::all().into_iter().map(|value| (value, H::with_label(name, V::NAME, value))).collect();
        Self { handles, values: PhantomData }
    }

    fn labels() -> Option<(&'static str, Vec<&'static str>)> {
        Some((V::NAME, V::all()))
    }
}

/// A metric with a handle for each outbox consumer. Consumers are registered at run time.
pub struct PerConsumer<H> {
    name: &'static str,
    handle: PhantomData<H>,
}

impl<H: Handle> PerConsumer<H> {
    const LABEL: &'static str = "consumer";

    /// The handle for a consumer, at the recorder of the calling thread.
    pub fn of(&self, consumer: &'static str) -> H {
        H::with_label(self.name, Self::LABEL, consumer)
    }
}

impl<H: Handle> Metric for PerConsumer<H> {
    const KIND: MetricKind = H::KIND;

    fn register(name: &'static str, help: &'static str) -> Self {
        H::describe(name, help);
        Self { name, handle: PhantomData }
    }

    fn labels() -> Option<(&'static str, Vec<&'static str>)> {
        Some((Self::LABEL, Vec::new()))
    }
}

/// Declares the metrics of a crate as a struct of handles, with `register` and `SPECS`.
#[macro_export]
macro_rules! metric_table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $table:ident {
            $( $field:ident : $metric:ty = $name:literal, $help:literal; )*
        }
    ) => {
        $(#[$meta])*
        $vis struct $table {
            $( #[doc = $help] $vis $field: $metric, )*
        }

        impl $table {
            /// The table, for docs/metrics.md.
            pub const SPECS: &'static [$crate::metrics::MetricSpec] =
                &[ $( $crate::metrics::MetricSpec::of::<$metric>($name, $help), )* ];

            /// Makes the handles, at the recorder of the calling thread.
            pub fn register() -> Self {
                Self { $( $field: <$metric as $crate::metrics::Metric>::register($name, $help), )* }
            }
        }
    };
}

/// Declares the values of a metric's label as an enum.
#[macro_export]
macro_rules! metric_label {
    (
        $(#[$meta:meta])*
        $vis:vis enum $label:ident : $name:literal { $( $(#[$doc:meta])* $variant:ident = $value:literal ),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the value says it")]
        $vis enum $label { $( $(#[$doc])* $variant, )* }

        impl $crate::metrics::MetricLabel for $label {
            const NAME: &'static str = $name;
            const ALL: &'static [Self] = &[ $( Self::$variant, )* ];

            fn value(self) -> &'static str {
                match self { $( Self::$variant => $value, )* }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
