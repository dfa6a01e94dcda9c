//! The exporter of metrics, in Prometheus' text format.

use std::{sync::Arc, time::Duration};

use kukuri_engine::metrics::SharedRecorder;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Buckets of `…_seconds`, from 50 µs to 10 s.
const SECONDS: [f64; 16] =
    [5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Buckets of `…_size`.
const SIZES: [f64; 7] = [1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0];
/// How often histograms are folded, so that they do not grow between two scrapes.
const FOLD_INTERVAL: Duration = Duration::from_secs(10);

/// A recorder and the handle that renders it. Each node of a process has its own.
#[derive(Clone)]
pub struct Exporter {
    recorder: SharedRecorder,
    handle: PrometheusHandle,
}

impl Exporter {
    /// An empty recorder.
    pub fn new() -> Self {
        let seconds = Matcher::Suffix("_seconds".to_owned());
        let sizes = Matcher::Suffix("_size".to_owned());
        // Buckets are refused only if they are empty.
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(seconds, &SECONDS)
            .and_then(|builder| builder.set_buckets_for_metric(sizes, &SIZES))
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        Self { recorder: Arc::new(recorder), handle }
    }

    /// The recorder, for the engine.
    pub fn recorder(&self) -> SharedRecorder {
        Arc::clone(&self.recorder)
    }

    /// All metrics as text.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds histograms until dropped.
    pub(crate) async fn fold_regularly(&self) {
        let mut ticks = tokio::time::interval(FOLD_INTERVAL);
        loop {
            ticks.tick().await;
            self.handle.run_upkeep();
        }
    }
}

impl Default for Exporter {
    fn default() -> Self {
        Self::new()
    }
}
