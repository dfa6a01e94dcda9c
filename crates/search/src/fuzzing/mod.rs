//! What must hold for any text (a feature, for fuzz targets and the replay of their corpus).

pub mod analyzer;
pub mod snippet;

#[cfg(test)]
mod tests {
    use kukuri_testing::corpus::replay;

    #[test]
    fn kept_inputs_keep_the_rules() {
        replay("analyzer", super::analyzer::check);
        replay("snippet", super::snippet::check);
    }
}
