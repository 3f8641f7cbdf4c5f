//! Which board this is, by what a few files hold, and what its profile in `board/` says of its memory.

use crate::config::{Board, Memory};
use crate::limits::MIB;

/// What the watchdog needs to know of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The GPU's memory is the processor's.
    pub shared: bool,
    /// Huge pages that are set aside are what the GPU gets.
    pub huge_pages: bool,
    /// The floor at most, in thousandths of all memory.
    pub floor_permille: u32,
    /// What is as good as nothing, likewise.
    pub reserve_permille: u32,
    /// As fast as memory is filled.
    pub fill_mib_per_second: u32,
}

/// By [`Board::ALL`]. Read when this is compiled: a profile that lacks a number does not build.
const PROFILES: [Profile; Board::ALL.len()] = [
    profile(include_bytes!("../../board/jetson-orin.toml")),
    profile(include_bytes!("../../board/jetson-thor.toml")),
    profile(include_bytes!("../../board/dgx-spark.toml")),
    profile(include_bytes!("../../board/x86-rtx.toml")),
    profile(include_bytes!("../../board/amd.toml")),
    profile(include_bytes!("../../board/generic.toml")),
];

impl Profile {
    /// With what the configuration says otherwise. The shares of the floor and the reserve have keys of their own, in
    /// bytes, which [`Terms`](super::Terms) hold.
    #[must_use]
    pub fn with(&self, config: &Memory) -> Self {
        let fill = config.fill_per_second.map(|bytes| u32::try_from(bytes / MIB).unwrap_or(u32::MAX));
        Profile {
            shared: config.gpu_shared.unwrap_or(self.shared),
            huge_pages: config.huge_pages.unwrap_or(self.huge_pages),
            fill_mib_per_second: fill.unwrap_or(self.fill_mib_per_second),
            ..*self
        }
    }
}

/// The profile of `board`.
#[must_use]
pub const fn of(board: Board) -> &'static Profile {
    &PROFILES[board as usize]
}

const fn profile(toml: &[u8]) -> Profile {
    Profile {
        shared: toml[value(toml, b"\ngpu = \"")] == b's',
        huge_pages: toml[value(toml, b"\nhuge_pages = ")] == b't',
        floor_permille: number(toml, b"\nfloor_permille = "),
        reserve_permille: number(toml, b"\nreserve_permille = "),
        fill_mib_per_second: number(toml, b"\nfill_mib_per_second = "),
    }
}

const fn number(toml: &[u8], key: &[u8]) -> u32 {
    let (mut at, mut number) = (value(toml, key), 0);
    while toml[at].is_ascii_digit() {
        number = number * 10 + (toml[at] - b'0') as u32;
        at += 1;
    }
    number
}

/// Where the value behind `key` begins. Without it this indexes past the end, which the compiler refuses.
const fn value(toml: &[u8], key: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let mut same = 0;
        while same < key.len() && toml[at + same] == key[same] {
            same += 1;
        }
        if same == key.len() {
            return at + same;
        }
        at += 1;
    }
}

/// The files by which a board is known, as far as they are there: their contents, or what is in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// `/proc/device-tree/compatible`: texts that end with a zero.
    pub compatible: Vec<u8>,
    /// `/etc/nv_tegra_release`.
    pub tegra_release: Vec<u8>,
    /// `/sys/class/dmi/id/product_name`, and `/proc/device-tree/model`.
    pub product: Vec<u8>,
    /// `/proc/driver/nvidia` is there.
    pub nvidia: bool,
    /// What its driver says of each GPU there: `/proc/driver/nvidia/gpus/*/information`.
    pub gpus: Vec<u8>,
    /// PCI vendors of the graphics in `/sys/class/drm`, as `0x10de`.
    pub vendors: Vec<String>,
}

/// Which board it is, and by what that is known, in words.
#[must_use]
pub fn detect(found: &Found) -> (Board, &'static str) {
    let has = |text: &[u8], word: &str| text.windows(word.len()).any(|part| part == word.as_bytes());
    let tree = |word| has(&found.compatible, word);
    let product = |word| has(&found.product, word);
    let vendor = |id: &str| found.vendors.iter().any(|vendor| vendor == id);
    if tree("nvidia,tegra264") || product("Jetson AGX Thor") || product("Jetson Thor") {
        (Board::JetsonThor, "the device tree says Tegra264")
    } else if tree("nvidia,tegra234") || tree("nvidia,tegra194") {
        (Board::JetsonOrin, "the device tree says Tegra234 or Tegra194")
    } else if !found.tegra_release.is_empty() {
        (Board::JetsonOrin, "there is /etc/nv_tegra_release")
    } else if product("DGX Spark") || product("DGX_Spark") || product("GB10") {
        (Board::DgxSpark, "the product's name")
    } else if has(&found.gpus, "NVIDIA GB10") {
        (Board::DgxSpark, "the driver calls its GPU NVIDIA GB10")
    } else if found.nvidia || vendor("0x10de") {
        (Board::X86Rtx, "there is an NVIDIA card or its driver")
    } else if vendor("0x1002") {
        (Board::Amd, "there is AMD graphics")
    } else {
        (Board::Generic, "nothing says otherwise")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_read_as_toml_reads_it() {
        for (name, board) in Board::ALL {
            let path = format!("{}/board/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let tree: toml::Table = toml::from_str(&text).unwrap();
            let memory = &tree["memory"];
            let number = |key: &str| u32::try_from(memory[key].as_integer().unwrap()).unwrap();
            let want = Profile {
                shared: memory["gpu"].as_str() == Some("shared"),
                huge_pages: memory["huge_pages"].as_bool().unwrap(),
                floor_permille: number("floor_permille"),
                reserve_permille: number("reserve_permille"),
                fill_mib_per_second: number("fill_mib_per_second"),
            };
            assert_eq!(*of(board), want, "{name}");
            assert!(["shared", "own"].contains(&memory["gpu"].as_str().unwrap()));
            assert!(want.floor_permille > want.reserve_permille && want.fill_mib_per_second > 0);
            assert_eq!(board.as_str(), name);
        }
    }

    #[test]
    fn each_value_of_a_profile_can_be_overridden() {
        let mib = MIB;
        let config = Memory {
            board: Some(Board::DgxSpark),
            gpu_shared: Some(false),
            huge_pages: Some(false),
            fill_per_second: Some(500 * mib),
            floor: Some(700 * mib),
            reserve: Some(70 * mib),
            ..Memory::default()
        };
        let profile = of(Board::DgxSpark);
        let own = profile.with(&config);
        assert_eq!((own.shared, own.huge_pages, own.fill_mib_per_second), (false, false, 500));
        assert_eq!(profile.with(&Memory::default()), *profile);
        let terms = crate::memory::Terms::new(&config, profile);
        assert_eq!((terms.floor, terms.reserve), (Some(700 * 1024), Some(70 * 1024)));
        assert_eq!((terms.huge, terms.fill), (false, 512));
    }

    #[test]
    fn boards_are_told_apart() {
        let none = Found::default();
        let tree = |text: &str| Found { compatible: text.into(), ..Found::default() };
        let cards = |vendor: &str| Found { vendors: vec![vendor.to_owned()], ..Found::default() };
        for (found, want) in [
            (none.clone(), Board::Generic),
            (tree("nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0"), Board::JetsonOrin),
            (tree("nvidia,tegra264\0"), Board::JetsonThor),
            (tree("raspberrypi,5-model-b\0brcm,bcm2712\0"), Board::Generic),
            (
                Found {
                    tegra_release: b"# R36 (release), REVISION: 4.7, GCID: 1\n".to_vec(),
                    ..none.clone()
                },
                Board::JetsonOrin,
            ),
            (
                Found { product: b"NVIDIA_DGX_Spark\n".to_vec(), nvidia: true, ..none.clone() },
                Board::DgxSpark,
            ),
            (Found { nvidia: true, ..none }, Board::X86Rtx),
            (cards("0x10de"), Board::X86Rtx),
            (cards("0x1002"), Board::Amd),
            (cards("0x8086"), Board::Generic),
        ] {
            assert_eq!(detect(&found).0, want, "{found:?}");
        }
    }
}
