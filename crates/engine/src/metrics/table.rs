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

use std::marker::PhantomData;

use metrics::{Counter, Gauge, Histogram, Label};

/// A metric as it is declared.
#[derive(Clone, Copy)]
pub struct MetricSpec {
    /// Its name at the exporter.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    labels: fn() -> Option<(&'static str, Vec<&'static str>)>,
}

impl MetricSpec {
    /// For [`metric_table!`](crate::metric_table).
    pub const fn of<M: Metric>(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: M::Handle::KIND, labels: M::labels }
    }

    /// Its label and the values that label has; no values if they are only known at run time.
    pub fn labels(&self) -> Option<(&'static str, Vec<&'static str>)> {
        (self.labels)()
    }
}

/// A field of a table: a handle, or several of one metric.
pub trait Metric: Sized {
    /// The type of its handles.
    type Handle: Handle;

    /// Makes the handles, at the recorder of the calling thread.
    fn make(name: &'static str) -> Self;

    /// Makes the handles, and gives the metric its help text.
    fn register(name: &'static str, help: &'static str) -> Self {
        Self::Handle::describe(name, help);
        Self::make(name)
    }

    /// The label and its values.
    fn labels() -> Option<(&'static str, Vec<&'static str>)> {
        None
    }
}

/// The handle of a counter, a gauge or a histogram.
pub trait Handle {
    /// The kind of metric, as Prometheus names it.
    const KIND: &'static str;

    /// Gives the metric its help text.
    fn describe(name: &'static str, help: &'static str);

    /// Makes the handle for these labels.
    fn with_labels(name: &'static str, labels: Vec<Label>) -> Self;
}

macro_rules! handle {
    ($handle:ty, $make:ident, $describe:ident) => {
        impl Handle for $handle {
            const KIND: &'static str = stringify!($make);

            fn describe(name: &'static str, help: &'static str) {
                metrics::$describe!(name, help);
            }

            fn with_labels(name: &'static str, labels: Vec<Label>) -> Self {
                metrics::$make!(name, labels)
            }
        }

        impl Metric for $handle {
            type Handle = Self;

            fn make(name: &'static str) -> Self {
                Self::with_labels(name, Vec::new())
            }
        }
    };
}

handle!(Counter, counter, describe_counter);
handle!(Gauge, gauge, describe_gauge);
handle!(Histogram, histogram, describe_histogram);

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

    /// The label with this value at the exporter.
    fn from_value(value: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|label| label.value() == value)
    }
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
    type Handle = H;

    fn make(name: &'static str) -> Self {
        let handle = |label: &L| H::with_labels(name, vec![Label::new(L::NAME, label.value())]);
        Self { handles: L::ALL.iter().map(handle).collect(), label: PhantomData }
    }

    fn labels() -> Option<(&'static str, Vec<&'static str>)> {
        Some((L::NAME, L::ALL.iter().map(|label| label.value()).collect()))
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
        H::with_labels(self.name, vec![Label::new(Self::LABEL, consumer)])
    }
}

impl<H: Handle> Metric for PerConsumer<H> {
    type Handle = H;

    fn make(name: &'static str) -> Self {
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
                Self { $( $field: $crate::metrics::Metric::register($name, $help), )* }
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
