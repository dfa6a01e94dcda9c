//! Bounds of one connection that are not configured.

use kukuri_domain::Filter;

/// Values in the filters of all live subscriptions: each is an entry in the live index.
pub(crate) const MAX_FILTER_VALUES: usize = 10_000;
/// A value counts once more for each of these many bytes. Ids, keys and topics are shorter.
pub(crate) const VALUE_BYTES: usize = 128;
/// Keys that one connection may authenticate as.
pub(crate) const MAX_KEYS: usize = 32;

/// How many values a filter counts as.
pub(super) fn values_of(filter: &Filter) -> usize {
    let values = filter.tags().iter().flat_map(|(_, values)| values);
    filter.value_count() + values.map(|value| value.len() / VALUE_BYTES).sum::<usize>()
}
