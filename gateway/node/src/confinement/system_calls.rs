//! System calls by seccomp: those of administration fail with EPERM, and those that programs can do
//! without fail as not implemented (ENOSYS).

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};
use thiserror::Error;

/// Nothing in a running node makes them. The groups are those of
/// systemd.exec(5), SystemCallFilter=.
const REFUSED: &[c_long] = &[
    // Other programs: the helper was started before.
    libc::SYS_execve,
    libc::SYS_execveat,
    // @debug, and others' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    // @mount, and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    // @clock, but for adjtimex(2): it shows whether the clock is synchronised; a change by it needs
    // CAP_SYS_TIME, which was dropped.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    // @module, @reboot, @swap, the kernel's log and name.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_vhangup,
    // Files by handle, devices, watches of whole file systems.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_mknodat,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    // @keyring, @setuid, capabilities: they must not change any more.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_personality,
];

/// The same of one architecture.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_mknod,
    libc::SYS_uselib,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c_long] = &[];

/// Programs do without these if the kernel lacks them. Operations of io_uring bypass the filter.
/// The filter cannot see the flags of clone3; without it the C library uses clone.
const ABSENT: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_clone3,
];

/// Socket families that a node uses.
const FAMILIES: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// Flags of clone(2) for namespaces of one's own.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Why the filter is not there.
#[derive(Debug, Error)]
pub enum FilterError {
    /// It cannot be made for this architecture.
    #[error("{0}")]
    Make(#[from] BackendError),
    #[error("the kernel does not take the filter: {0}")]
    Install(#[from] io::Error),
}

/// Refuses the calls that a node does not make to this thread and those that it starts.
///
/// # Errors
/// When the kernel takes no filter.
pub fn restrict() -> Result<(), FilterError> {
    let mut refused: BTreeMap<c_long, Vec<SeccompRule>> = BTreeMap::new();
    refused.extend(
        REFUSED
            .iter()
            .chain(REFUSED_HERE)
            .map(|call| (*call, vec![])),
    );
    refused.insert(libc::SYS_socket, sockets()?);
    refused.insert(libc::SYS_clone, clones()?);
    let absent = ABSENT.iter().map(|call| (*call, vec![])).collect();
    install(&compile(absent, libc::ENOSYS)?)?;
    install(&compile(refused, libc::EPERM)?)?;
    Ok(())
}

/// Matches sockets of other families, and of netlink for purposes other than routes and addresses.
fn sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let families = FAMILIES
        .iter()
        .map(|family| is(0, SeccompCmpOp::Ne, *family));
    let netlink = [
        is(0, SeccompCmpOp::Eq, libc::AF_NETLINK)?,
        is(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE)?,
    ];
    Ok(vec![
        SeccompRule::new(families.collect::<Result<_, _>>()?)?,
        SeccompRule::new(netlink.to_vec())?,
    ])
}

fn clones() -> Result<Vec<SeccompRule>, BackendError> {
    let rules = NAMESPACES.iter().map(|flag| {
        let mask = u64::from(flag.unsigned_abs());
        SeccompRule::new(vec![is(0, SeccompCmpOp::MaskedEq(mask), *flag)?])
    });
    rules.collect()
}

fn is(argument: u8, operator: SeccompCmpOp, value: i32) -> Result<SeccompCondition, BackendError> {
    let value = u64::from(value.unsigned_abs());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn compile(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    errno: i32,
) -> Result<BpfProgram, BackendError> {
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let here = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, here)?.try_into()
}

/// As the crate does, but with a line in the audit log for each refused call.
fn install(program: &BpfProgram) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: `program` describes the instructions, which outlive the call;
    // the kernel copies them. Both crates' instructions have the kernel's
    // layout.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_LOG,
            std::ptr::from_ref(&program),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;

    use nix::errno::Errno;
    use nix::ifaddrs::getifaddrs;

    use super::*;
    use crate::confinement::capabilities::forbid_new;

    fn refused(call: c_long, arguments: [c_long; 3]) -> Errno {
        let [one, two, three] = arguments;
        // SAFETY: each call in the tests fails before it looks at what its arguments
        // point to, with or without the filter.
        let result = unsafe { libc::syscall(call, one, two, three, 0, 0) };
        assert_eq!(result, -1);
        Errno::last()
    }

    /// Whether a socket of this kind can be created.
    fn socket(family: i32, kind: i32, protocol: i32) -> Result<(), Errno> {
        // SAFETY: the call takes only numbers; the descriptor is closed.
        let made = unsafe { libc::socket(family, kind, protocol) };
        let made = Errno::result(made)?;
        // SAFETY: it was just created, and nobody else has it.
        unsafe { libc::close(made) };
        Ok(())
    }

    /// Runs `claims` in a thread with the filter, which ends with it.
    fn filtered(claims: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(|| {
            forbid_new().unwrap();
            match restrict() {
                Ok(()) => claims(),
                Err(error) => skipped::because(error),
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn what_administers_is_refused_and_nobody_is_killed() {
        filtered(|| {
            for call in REFUSED.iter().chain(REFUSED_HERE) {
                assert_eq!(refused(*call, [-1, -1, -1]), Errno::EPERM, "{call}");
            }
            for call in ABSENT {
                assert_eq!(refused(*call, [-1, -1, -1]), Errno::ENOSYS, "{call}");
            }
            let user = c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
            assert_eq!(refused(libc::SYS_clone, [user, 0, 0]), Errno::EPERM);
            for (family, kind, protocol) in [
                (libc::AF_PACKET, libc::SOCK_RAW, 0),
                (libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
                (libc::AF_VSOCK, libc::SOCK_STREAM, 0),
                (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER),
                (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
            ] {
                assert_eq!(
                    socket(family, kind, protocol),
                    Err(Errno::EPERM),
                    "{family}"
                );
            }
            let program = std::process::Command::new("/bin/true").status();
            assert_eq!(
                program.unwrap_err().kind(),
                std::io::ErrorKind::PermissionDenied
            );
        });
    }

    #[test]
    fn what_a_node_does_goes_on() {
        filtered(|| {
            socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE).unwrap();
            assert!(getifaddrs().unwrap().count() > 0);
            // SAFETY: timex is a structure of integers, for which zero is a value.
            let mut clock: libc::timex = unsafe { std::mem::zeroed() };
            // SAFETY: with modes = 0 the call only writes into `clock`.
            assert_ne!(unsafe { libc::adjtimex(&raw mut clock) }, -1);
            let listener = TcpListener::bind("[::]:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            UdpSocket::bind("127.0.0.1:0").unwrap();
            UnixStream::pair().unwrap();
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .unwrap();
            let found = runtime.block_on(async {
                tokio::task::spawn_blocking(|| std::fs::read("/proc/self/status"))
                    .await
                    .unwrap()
            });
            assert!(!found.unwrap().is_empty());
            let mut random = [0; 32];
            ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random).unwrap();
        });
    }
}
