//! The work that one attempt or one step of a query may still do, counted in rows (Y-2): the unit of `limits.query_rows`.
//!
//! A row that is looked at costs one, whether or not it matches. A lookup by key costs one, as does an index seek. An event
//! that is read to decide whether it matches costs one more for every 4 KiB of its JSON, because it may have to be parsed.

/// Bytes of JSON that cost as much as a row.
const BYTES_PER_ROW: usize = 4_096;

/// The work that is left. The last piece of work may cost more than that.
#[derive(Debug)]
pub(crate) struct Grant {
    rows: usize,
    max_ranges: usize,
}

impl Grant {
    /// This many rows, and any number of ranges.
    pub(crate) fn rows(rows: usize) -> Self {
        Self { rows, max_ranges: usize::MAX }
    }

    /// At most this many ranges for each filter.
    pub(crate) fn with_max_ranges(self, max_ranges: usize) -> Self {
        Self { max_ranges, ..self }
    }

    /// Rows that are left.
    pub(crate) fn left(&self) -> usize {
        self.rows
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.rows == 0
    }

    /// Maximum ranges of one scan.
    pub(crate) fn max_ranges(&self) -> usize {
        self.max_ranges
    }

    pub(crate) fn take(&mut self, rows: usize) {
        self.rows = self.rows.saturating_sub(rows);
    }

    /// Takes what reading an event costs beyond its row.
    pub(crate) fn take_event(&mut self, json: &[u8]) {
        self.take(json.len() / BYTES_PER_ROW);
    }
}
