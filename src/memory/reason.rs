//! Why memory's pressure is what it is, as names and in words.

/// Why pressure is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Enough is free.
    Enough,
    /// Below the floor.
    Level,
    /// It falls so fast that it is used up soon, and is above what is usual.
    Trend,
    /// The kernel is busy finding memory, and little is left.
    Stall,
    /// A process of the model server's cgroup was killed for memory.
    Killed,
    /// A load takes more than it was to take.
    Overrun,
    /// Below twice the floor, and falling so fast that it is used up at once.
    LevelAndTrend,
    /// Below half the floor, and the kernel is in trouble or has killed.
    LevelAndStall,
    /// Falling fast, and the kernel is in trouble or has killed.
    TrendAndStall,
    /// No sign any more, but not for long enough.
    Held,
    /// Nothing can be read.
    Blind,
}

impl Reason {
    /// Every one, in the order of the enum: the stable names, for traces and fields, and words for people.
    const WORDS: [(&'static str, &'static str); 11] = [
        ("enough", "enough is free"),
        ("level", "less is available than this box usually lives with"),
        ("trend", "it falls fast, beyond what is usual"),
        ("stall", "little is available and programs wait for memory"),
        ("killed", "a process of the model server was killed for memory"),
        ("overrun", "a model that is being loaded takes more than expected"),
        ("level_trend", "little is left, and it goes on falling"),
        ("level_stall", "little is left, and programs wait for memory"),
        ("trend_stall", "it falls fast, and programs wait for memory"),
        ("held", "no sign of it any more, but not for long yet"),
        ("blind", "nothing of this box's memory can be read"),
    ];

    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        Reason::WORDS[self as usize].0
    }

    /// For people.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        Reason::WORDS[self as usize].1
    }
}
