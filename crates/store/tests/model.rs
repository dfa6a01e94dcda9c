//! The suite of all stores, on the model.

use kukuri_store::conformance::ModelHarness;

kukuri_store::conformance_suite!(ModelHarness);
