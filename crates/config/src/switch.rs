//! `on` or `off`.

/// Whether a part of the node works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// `on`
    On,
    /// `off`
    Off,
}

crate::choices!(Switch: "on or off", On = "on", Off = "off");
