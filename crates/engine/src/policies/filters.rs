//! Limits on the filters of one request (T-6, W-4).

use super::{Context, Policy, ReadRequest};
use crate::refused::ReadRefused;

pub(super) struct FilterPolicy;

impl Policy for FilterPolicy {
    fn check_read(&self, context: &Context<'_>, request: &ReadRequest<'_>) -> Result<(), ReadRefused> {
        let limits = &context.config.requests;
        if request.filters.len() > limits.filters {
            return Err(ReadRefused::TooManyFilters(limits.filters));
        }
        for filter in request.filters {
            if filter.value_count() > limits.filter_values {
                return Err(ReadRefused::TooManyValues(limits.filter_values));
            }
            context.config.admission.topics.check(filter)?;
        }
        Ok(())
    }
}
