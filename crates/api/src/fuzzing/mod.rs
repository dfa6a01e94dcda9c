//! What must hold for any cursor and any parameters (a feature, for fuzz targets and the replay of their corpus).
#![allow(clippy::expect_used, reason = "a property panics where it does not hold")]

pub mod cursor;
pub mod request;

#[cfg(test)]
mod tests {
    use kukuri_testing::corpus::replay;

    #[test]
    fn kept_inputs_keep_the_rules() {
        replay("cursor", super::cursor::check);
        replay("api_request", super::request::check);
    }
}
