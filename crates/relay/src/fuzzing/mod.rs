//! What must hold for any bytes of a client (a feature, for fuzz targets and the replay of their corpus).
#![allow(clippy::expect_used, reason = "a property panics where it does not hold")]

pub mod client_message;
pub mod websocket;

#[cfg(test)]
mod tests {
    use kukuri_testing::corpus::replay;

    #[test]
    fn kept_inputs_keep_the_rules() {
        replay("client_message", super::client_message::check);
        replay("websocket", super::websocket::check);
    }
}
