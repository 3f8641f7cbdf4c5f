//! Where this box tells of its memory: the board's files, the cgroup that counts, the cards.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::config::{Board, Memory};
use crate::limits;
use crate::memory::board::{Found, detect};

/// Where everything is but in tests.
pub const ROOT: &str = "/";
/// Where cgroups are under the root, version 2 and 1.
const GROUPS: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/memory"];

/// The beginning of a small file; empty where there is none.
fn head(path: impl AsRef<Path>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let most = u64::try_from(limits::MEMORY_FILE_BYTES).unwrap_or(u64::MAX);
        // What could be read is what is known.
        let _partly = file.take(most).read_to_end(&mut bytes);
    }
    bytes
}

fn text(path: impl AsRef<Path>) -> String {
    String::from_utf8_lossy(&head(path)).trim().to_owned()
}

/// The folders of graphics cards.
fn cards(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root.join("sys/class/drm")) else { return Vec::new() };
    let mut cards: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            // Not its connectors, as card0-HDMI-A-1.
            name.to_str().and_then(|name| name.strip_prefix("card")).is_some_and(|n| n.parse::<u16>().is_ok())
        })
        .map(|entry| entry.path().join("device"))
        .collect();
    cards.sort();
    cards
}

/// What NVIDIA's driver says of each GPU: its name among it.
fn gpus(root: &Path) -> Vec<u8> {
    let Ok(entries) = fs::read_dir(root.join("proc/driver/nvidia/gpus")) else { return Vec::new() };
    entries.flatten().flat_map(|entry| head(entry.path().join("information"))).collect()
}

/// Which board this is, and by what that is known: the configuration's, or found out by what is under `root`.
#[must_use]
pub fn board(root: &Path, config: &Memory) -> (Board, &'static str) {
    if let Some(board) = config.board {
        return (board, "the configuration says so");
    }
    let at = |path| head(root.join(path));
    detect(&Found {
        compatible: at("proc/device-tree/compatible"),
        tegra_release: at("etc/nv_tegra_release"),
        product: [at("sys/class/dmi/id/product_name"), at("proc/device-tree/model")].concat(),
        nvidia: root.join("proc/driver/nvidia").exists(),
        gpus: gpus(root),
        vendors: cards(root).iter().map(|card| text(card.join("vendor"))).collect(),
    })
}

/// An AMD card with memory of its own: its folder.
#[must_use]
pub fn card(root: &Path) -> Option<PathBuf> {
    cards(root).into_iter().find(|card| {
        let total = text(card.join("mem_info_vram_total")).parse::<u64>();
        total.is_ok_and(|bytes| bytes >= limits::MEMORY_CARD_BYTES)
    })
}

/// The cgroup whose limit the model server meets: the configuration's, or one that it shares with edgeward, as in a
/// container.
#[must_use]
pub fn group(root: &Path, config: &Memory) -> Option<PathBuf> {
    let own = || text(root.join("proc/self/cgroup"));
    config.cgroup.clone().or_else(|| shared_group(root, &own(), &|folder| has_limit(folder)))
}

/// Whether it has a limit that a model server may live in. In a container of edgeward alone the limit is edgeward's, and
/// small.
fn has_limit(folder: &Path) -> bool {
    // Version 1 has "no limit" as 2^63 less a page; more than any box has is none.
    const FILES: [&str; 3] = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let limit = FILES.iter().filter_map(|file| text(folder.join(file)).parse::<u64>().ok()).min();
    limit.is_some_and(|bytes| (limits::MEMORY_GROUP_LEAST..1 << 60).contains(&bytes))
}

/// From `/proc/self/cgroup`: edgeward's own, or one around it, that has a limit. The limit of its own unit is not the
/// model server's.
fn shared_group(root: &Path, cgroup: &str, has_limit: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut folders = Vec::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
        if !path.starts_with('/') {
            continue;
        }
        let groups = match kinds {
            "" => GROUPS[0],
            kinds if kinds.split(',').any(|kind| kind == "memory") => GROUPS[1],
            _ => continue,
        };
        let own = path.trim_start_matches('/');
        let below = Path::new(own).ancestors().skip(usize::from(own.ends_with(".service")));
        folders.extend(below.map(|path| root.join(groups).join(path)));
    }
    folders.into_iter().find(|folder| has_limit(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cgroup: &str, limited: &[&str]) -> Option<String> {
        let has = |folder: &Path| {
            limited.iter().any(|limited| Path::new(limited) == folder.components().collect::<PathBuf>())
        };
        shared_group(Path::new(ROOT), cgroup, &has)
            .map(|path| path.components().collect::<PathBuf>().display().to_string())
    }

    #[test]
    fn the_limit_that_counts_is_one_that_the_server_shares() {
        let unit = "0::/system.slice/edgeward.service";
        let own = "/sys/fs/cgroup/system.slice/edgeward.service";
        assert_eq!(found(unit, &[own]), None, "its own unit's MemoryMax= is not the server's");
        let slice = "/sys/fs/cgroup/system.slice";
        assert_eq!(found(unit, &[own, slice]).as_deref(), Some(slice));
        assert_eq!(found("0::/", &["/sys/fs/cgroup"]).as_deref(), Some("/sys/fs/cgroup"), "a container");
        assert_eq!(found("0::/", &[]), None);
        let old = "9:name=systemd:/\n4:cpu,memory:/docker/1\n0::/\n";
        assert_eq!(found(old, &["/sys/fs/cgroup/memory"]).as_deref(), Some("/sys/fs/cgroup/memory"));
        let inner = "/sys/fs/cgroup/memory/docker/1";
        assert_eq!(found(old, &["/sys/fs/cgroup/memory", inner]).as_deref(), Some(inner));
        assert_eq!(found("nonsense\n::\n", &["/sys/fs/cgroup"]), None);
    }

    #[test]
    fn a_limit_too_small_for_a_model_server_is_edgewards_own() {
        let folder = std::env::temp_dir().join(format!("edgeward-places-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (max, high, want) in [
            ("268435456", "max", false),
            ("8589934592", "268435456", false),
            ("max", "max", false),
            ("8589934592", "max", true),
            ("max", "8589934592", true),
            ("9223372036854771712", "max", false),
        ] {
            fs::write(folder.join("memory.max"), format!("{max}\n")).unwrap();
            fs::write(folder.join("memory.high"), format!("{high}\n")).unwrap();
            assert_eq!(has_limit(&folder), want, "{max} {high}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_amd_card_with_memory_of_its_own_is_found_beside_what_has_little() {
        let root = std::env::temp_dir().join(format!("edgeward-cards-{}", std::process::id()));
        let folder = root.join("sys/class/drm");
        // As in /sys/class/drm: a card inside the processor, a connector, a card without such files, and one with 16 GiB.
        for (name, total) in [
            ("card0", Some("536870912\n")),
            ("card0-HDMI-A-1", Some("17163091968\n")),
            ("card1", None),
            ("card10", Some("17163091968\n")),
            ("renderD128", Some("17163091968\n")),
        ] {
            let device = folder.join(name).join("device");
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("vendor"), "0x1002\n").unwrap();
            if let Some(total) = total {
                fs::write(device.join("mem_info_vram_total"), total).unwrap();
            }
        }
        assert_eq!(card(&root), Some(folder.join("card10/device")));
        assert_eq!(cards(&root).len(), 3);
        fs::remove_dir_all(folder.join("card10")).unwrap();
        assert_eq!(card(&root), None, "what a processor sets aside for its graphics is the box's memory");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_the_configuration_says_is_not_looked_for() {
        let config = Memory { board: Some(Board::DgxSpark), cgroup: Some("/x".into()), ..Memory::default() };
        assert_eq!(board(Path::new(ROOT), &config).0, Board::DgxSpark);
        assert_eq!(group(Path::new(ROOT), &config), Some("/x".into()));
    }

    /// A box's tree in `board/fixtures`.
    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("board/fixtures").join(name)
    }

    #[test]
    fn each_board_is_known_by_its_files_and_its_memory_is_read() {
        use crate::memory::{Axis, Field};
        const GIB: u32 = 1024 * 1024;
        for (name, want, word, available) in [
            ("jetson-orin", Board::JetsonOrin, "device tree", 2_621_440),
            ("jetson-orin-container", Board::JetsonOrin, "/etc/nv_tegra_release", 21_458_304),
            ("jetson-thor", Board::JetsonThor, "device tree", 98_831_360),
            // Huge pages are set aside: those that are free count, not MemAvailable.
            ("dgx-spark", Board::DgxSpark, "product", 32 * GIB),
            ("dgx-spark-sibling", Board::DgxSpark, "NVIDIA GB10", 90_000_000),
            ("x86-rtx", Board::X86Rtx, "NVIDIA card", 52_000_000),
            ("amd", Board::Amd, "AMD", 52_000_000),
            ("generic", Board::Generic, "nothing", 6_000_000),
        ] {
            let (config, root) = (Memory::default(), fixture(name));
            let mut sampler = super::super::sampler::Sampler::at(&root, &config);
            let (board, why) = sampler.board;
            assert_eq!(board, want, "{name}");
            assert!(why.contains(word), "{name}: {why}");
            let terms = sampler.terms(&config);
            let sample = sampler.read(crate::time::now());
            let host = sample.axis(Axis::Host, terms.huge).map(|(available, _)| available);
            assert_eq!(host, Some(available), "{name}");
            assert_eq!(sample.get(Field::NvMap).is_some(), want == Board::JetsonOrin, "{name}");
            // The card with memory of its own, not the processor's graphics.
            let device = (want == Board::Amd).then_some((18 * GIB + GIB * 63 / 64, 24 * GIB - 16 * 1024));
            assert_eq!(sample.axis(Axis::Device, false), device, "{name}");
            let waiting = ["jetson-orin", "jetson-orin-container", "generic"].contains(&name);
            assert_eq!(sample.get(Field::PsiSome).is_none(), waiting, "{name}: no PSI in its kernel");
        }
    }
}
