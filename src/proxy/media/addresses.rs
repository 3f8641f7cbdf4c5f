//! Which addresses a picture may be fetched from: the Internet's, and none that lead back to this box or its network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is for one who fetches what a stranger named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// On the Internet.
    Public,
    /// On this box or its network: only for hosts that the configuration names.
    Private,
    /// For nobody: clouds' metadata, link-local, multicast, unspecified, reserved.
    Never,
}

/// Blocks of IPv4 that are not the Internet's (IANA's IPv4 Special-Purpose Address Registry, and clouds' own services):
/// address, length of the prefix, what it is. The first that fits counts.
const FOUR: [(Ipv4Addr, u32, Reach); 18] = [
    // Alibaba's and Azure's metadata: the one stands in shared address space, the other among public addresses.
    (Ipv4Addr::new(100, 100, 100, 200), 32, Reach::Never),
    (Ipv4Addr::new(168, 63, 129, 16), 32, Reach::Never),
    (Ipv4Addr::new(0, 0, 0, 0), 8, Reach::Never),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Reach::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Reach::Private),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Reach::Private),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Reach::Never),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Reach::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Reach::Never),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Reach::Never),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Reach::Never),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Reach::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Reach::Never),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Reach::Never),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Reach::Never),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Reach::Never),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Reach::Never),
    (Ipv4Addr::new(255, 255, 255, 255), 32, Reach::Never),
];

/// The same of IPv6 (IANA's registry): what none of these holds is the Internet's within 2000::/3 alone.
const SIX: [(Ipv6Addr, u32, Reach); 7] = [
    // Amazon's metadata, among the unique local ones.
    (Ipv6Addr::new(0xFD00, 0x0EC2, 0, 0, 0, 0, 0, 0x0254), 128, Reach::Never),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 1), 128, Reach::Private),
    (Ipv6Addr::new(0xFC00, 0, 0, 0, 0, 0, 0, 0), 7, Reach::Private),
    // The IETF's own, Teredo among them, which has an IPv4 address inside.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Reach::Never),
    (Ipv6Addr::new(0x2001, 0x0DB8, 0, 0, 0, 0, 0, 0), 32, Reach::Never),
    // 6to4, which has one as well.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Reach::Never),
    (Ipv6Addr::new(0x3FFF, 0, 0, 0, 0, 0, 0, 0), 20, Reach::Never),
];

/// What an address is.
#[must_use]
pub fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(four) => reach_four(four),
        IpAddr::V6(six) => match four_inside(six) {
            Some(four) => reach_four(four),
            None => reach_six(six),
        },
    }
}

fn reach_four(four: Ipv4Addr) -> Reach {
    let within = |block: &Ipv4Addr, length: u32| (four.to_bits() ^ block.to_bits()) >> (32 - length) == 0;
    let found = FOUR.iter().find(|(block, length, _)| within(block, *length));
    found.map_or(Reach::Public, |(_, _, reach)| *reach)
}

fn reach_six(six: Ipv6Addr) -> Reach {
    let within = |block: &Ipv6Addr, length: u32| (six.to_bits() ^ block.to_bits()) >> (128 - length) == 0;
    match SIX.iter().find(|(block, length, _)| within(block, *length)) {
        Some((_, _, reach)) => *reach,
        None if six.to_bits() >> 125 == 1 => Reach::Public,
        None => Reach::Never,
    }
}

/// The IPv4 address that is meant: of an IPv4-mapped one, and behind NAT64's well-known prefix (RFC 6052).
fn four_inside(six: Ipv6Addr) -> Option<Ipv4Addr> {
    match six.segments() {
        [0, 0, 0, 0, 0, 0xFFFF, high, low] | [0x64, 0xFF9B, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Reach {
        reach(text.parse().unwrap())
    }

    #[test]
    fn the_internet_is_public_and_the_rest_is_told_apart() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "223.255.255.255",
        ] {
            assert_eq!(of(public), Reach::Public, "{public}");
            assert_eq!(of(&format!("::ffff:{public}")), Reach::Public, "{public}");
            assert_eq!(of(&format!("64:ff9b::{public}")), Reach::Public, "{public}");
        }
        for public in ["2606:4700::1111", "2a00:1450::1", "2001:200::1", "3ffe::1"] {
            assert_eq!(of(public), Reach::Public, "{public}");
        }
        for private in [
            "10.1.2.3",
            "127.0.0.1",
            "127.9.9.9",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
        ] {
            assert_eq!(of(private), Reach::Private, "{private}");
            assert_eq!(of(&format!("::ffff:{private}")), Reach::Private, "{private}");
            assert_eq!(of(&format!("64:ff9b::{private}")), Reach::Private, "{private}");
        }
        for private in ["::1", "fc00::1", "fd12:3456::1"] {
            assert_eq!(of(private), Reach::Private, "{private}");
        }
        for never in [
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.255.255",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "fd00:ec2::254",
            "2001:0:4136:e378::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "100::1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b:1::7f00:1",
            "4000::1",
        ] {
            assert_eq!(of(never), Reach::Never, "{never}");
        }
    }

    proptest! {
        #[test]
        fn no_address_of_this_networks_is_public(bits: u32) {
            let four = Ipv4Addr::from_bits(bits);
            let own = four.is_private() || four.is_loopback() || four.is_link_local() || four.is_multicast()
                || four.is_unspecified() || four.is_broadcast() || four.is_documentation();
            let plain = reach(IpAddr::V4(four));
            prop_assert!(!own || plain != Reach::Public);
            // However it is written.
            prop_assert_eq!(reach(IpAddr::V6(four.to_ipv6_mapped())), plain);
            prop_assert_ne!(reach(IpAddr::V6(four.to_ipv6_compatible())), Reach::Public);
        }

        #[test]
        fn nor_one_of_ipv6(bits: u128, first in prop::sample::select(vec![0x00_u8, 0xFC, 0xFD, 0xFE, 0xFF, 0x20])) {
            let bits = bits >> 8 | u128::from(first) << 120;
            let six = Ipv6Addr::from_bits(bits);
            let own = six.is_loopback() || six.is_multicast() || six.is_unspecified()
                || six.is_unique_local() || six.is_unicast_link_local();
            prop_assert!(!own || reach(IpAddr::V6(six)) != Reach::Public);
            let outside = bits >> 125 != 1 && four_inside(six).is_none();
            prop_assert!(!outside || reach(IpAddr::V6(six)) != Reach::Public);
        }
    }
}
