//! What must hold for any request (a feature, for fuzz targets and the replay of their corpus).
#![allow(clippy::expect_used, reason = "a property panics where it does not hold")]

pub mod proxy_header;
pub mod request;

#[cfg(test)]
mod tests {
    use kukuri_testing::corpus::replay;

    #[test]
    fn kept_inputs_keep_the_rules() {
        replay("proxy_header", super::proxy_header::check);
        replay("http_request", super::request::check);
    }
}
