//! What must hold for any bytes of a peer (a feature, for fuzz targets and the replay of their corpus).
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a property panics where it does not hold")]

pub mod message;
pub mod session;

#[cfg(test)]
mod tests {
    use kukuri_testing::corpus::{replay, seed};

    #[test]
    fn kept_inputs_keep_the_rules() {
        for (number, message) in crate::message::examples().iter().enumerate() {
            seed("catchup_message", &format!("{number:02}"), &message.encode());
        }
        replay("catchup_message", super::message::check);
        for (name, bytes) in super::session::examples() {
            seed("catchup_session", name, &bytes);
        }
        replay("catchup_session", super::session::check);
    }
}
