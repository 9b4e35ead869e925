//! A network interface of the current namespace, by the kernel's ioctls.

use std::fs::File;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use ipnet::IpNet;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// An interface that has just been made.
pub(super) struct Interface {
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Interface {
    /// Makes a TUN device called `name` that belongs to `file`.
    ///
    /// Without TUNSETOFFLOAD the kernel splits large segments and fills in
    /// checksums before it hands packets over, so each is one of the wire.
    pub(super) fn attach(file: &File, name: &str) -> io::Result<Self> {
        let mut interface = Interface {
            name: [0; libc::IFNAMSIZ],
        };
        for (to, from) in interface.name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let mut request = interface.request();
        request.ifr_ifru.ifru_flags =
            (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
        ioctl(file, libc::TUNSETIFF, &mut request)?;
        Ok(interface)
    }

    pub(super) fn set_tx_queue(&self, packets: u32) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_metric = packets as libc::c_int;
        self.configure(libc::SIOCSIFTXQLEN, &mut request)
    }

    pub(super) fn set_mtu(&self, mtu: u16) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = libc::c_int::from(mtu);
        self.configure(libc::SIOCSIFMTU, &mut request)
    }

    pub(super) fn set_up(&self) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        self.configure(libc::SIOCSIFFLAGS, &mut request)
    }

    /// Adds an address; its prefix becomes a route as well.
    pub(super) fn add_address(&self, address: IpNet) -> io::Result<()> {
        match address {
            IpNet::V4(net) => {
                let mut request = self.request();
                request.ifr_ifru.ifru_addr = socket_address(net.addr());
                self.configure(libc::SIOCSIFADDR, &mut request)?;
                let mut request = self.request();
                request.ifr_ifru.ifru_netmask = socket_address(net.netmask());
                self.configure(libc::SIOCSIFNETMASK, &mut request)
            }
            IpNet::V6(net) => {
                let mut request = libc::in6_ifreq {
                    ifr6_addr: in6_address(net.addr()),
                    ifr6_prefixlen: u32::from(net.prefix_len()),
                    ifr6_ifindex: self.index()?,
                };
                ioctl(
                    &control(AddressFamily::Inet6)?,
                    libc::SIOCSIFADDR,
                    &mut request,
                )
            }
        }
    }

    pub(super) fn add_route(&self, destination: IpNet) -> io::Result<()> {
        match destination {
            IpNet::V4(net) => {
                // SAFETY: a C struct of integers and pointers, for which all
                // zero bits is a valid value.
                let mut route: libc::rtentry = unsafe { mem::zeroed() };
                route.rt_dst = socket_address(net.network());
                route.rt_genmask = socket_address(net.netmask());
                route.rt_flags = libc::RTF_UP;
                route.rt_dev = self.name.as_ptr().cast_mut();
                self.configure(libc::SIOCADDRT, &mut route)
            }
            IpNet::V6(net) => {
                let any = libc::in6_addr { s6_addr: [0; 16] };
                let mut route = Ipv6Route {
                    destination: in6_address(net.network()),
                    source: any,
                    gateway: any,
                    kind: 0,
                    destination_len: u16::from(net.prefix_len()),
                    source_len: 0,
                    metric: 1,
                    info: 0,
                    flags: u32::from(libc::RTF_UP),
                    interface: self.index()?,
                };
                ioctl(&control(AddressFamily::Inet6)?, libc::SIOCADDRT, &mut route)
            }
        }
    }

    fn index(&self) -> io::Result<libc::c_int> {
        let mut request = self.request();
        self.configure(libc::SIOCGIFINDEX, &mut request)?;
        // SAFETY: SIOCGIFINDEX has filled in this member of the union.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex })
    }

    fn configure<T>(&self, command: libc::Ioctl, request: &mut T) -> io::Result<()> {
        ioctl(&control(AddressFamily::Inet)?, command, request)
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: a C struct of integers and unions of them, for which all
        // zero bits is a valid value.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        request.ifr_name = self.name;
        request
    }
}

/// The kernel's `struct in6_rtmsg` (linux/ipv6_route.h).
#[repr(C)]
struct Ipv6Route {
    destination: libc::in6_addr,
    source: libc::in6_addr,
    gateway: libc::in6_addr,
    kind: u32,
    destination_len: u16,
    source_len: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    interface: libc::c_int,
}

/// Any socket of a family takes its family's interface ioctls.
fn control(family: AddressFamily) -> io::Result<std::os::fd::OwnedFd> {
    Ok(socket(
        family,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?)
}

fn ioctl<T>(file: &impl AsRawFd, command: libc::Ioctl, request: &mut T) -> io::Result<()> {
    // SAFETY: every caller pairs the command with the struct that the kernel
    // reads and writes for it, and the pointer is valid for the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), command, std::ptr::from_mut(request)) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    // A sockaddr_in has a port of two bytes before the address.
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}

fn in6_address(address: Ipv6Addr) -> libc::in6_addr {
    libc::in6_addr {
        s6_addr: address.octets(),
    }
}
