//! What must hold for any bytes that are read as an event or a filter (a feature, for fuzz targets and the replay of their
//! corpus).
#![allow(clippy::expect_used, reason = "a property panics where it does not hold")]

pub mod event;
pub mod filter;

#[cfg(test)]
mod tests {
    use kukuri_testing::corpus::replay;

    #[test]
    fn kept_inputs_keep_the_rules() {
        replay("event", super::event::check);
        replay("filter", super::filter::check);
    }
}
