//! The edgeward program.
fn main() {}
