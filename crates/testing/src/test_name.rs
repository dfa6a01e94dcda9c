//! The name of a test that starts its own program again, checked by the compiler: a renamed test can't be started by its
//! old name, which would match nothing and pass.

/// The name of a test function as `--exact` takes it.
#[macro_export]
macro_rules! test_name {
    ($test:ident) => {{
        let _ = $test;
        $crate::test_name::without_program(concat!(module_path!(), "::", stringify!($test)))
    }};
}

/// The path without its first segment, which is the test program.
pub fn without_program(path: &'static str) -> &'static str {
    path.split_once("::").map_or(path, |(_, rest)| rest)
}
