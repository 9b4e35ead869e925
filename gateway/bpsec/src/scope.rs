//! What a security operation covers besides its target's content: the common part of IPPT
//! and AAD (RFC 9173 §3.7 and §4.7).

use underpass_bundle::wire::{Content, UNSIGNED, write_head};

/// Integrity scope flags (RFC 9173 §3.3.3) and AAD scope flags (§4.3.4), which have the
/// same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope(pub u64);

impl Scope {
    /// The primary block.
    pub const PRIMARY: u64 = 1;
    /// The target's block header.
    pub const TARGET_HEADER: u64 = 2;
    /// The security block's own header.
    pub const SECURITY_HEADER: u64 = 4;
    /// All flags, the default of both contexts.
    pub const ALL: Scope = Scope(Scope::PRIMARY | Scope::TARGET_HEADER | Scope::SECURITY_HEADER);

    /// Whether the operation binds its target to the primary block.
    pub fn has_primary(self) -> bool {
        self.0 & Scope::PRIMARY != 0
    }

    /// Keeps the flags that RFC 9173 defines, and ignores others.
    pub fn of(flags: u64) -> Scope {
        Scope(flags & Scope::ALL.0)
    }
}

/// The fields of a block's header that a security operation covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Block type code.
    pub kind: u64,
    /// Block number.
    pub number: u64,
    /// Block processing control flags.
    pub flags: u64,
}

impl Header {
    fn write(self, out: &mut Vec<u8>) {
        for field in [self.kind, self.number, self.flags] {
            write_head(out, UNSIGNED, field);
        }
    }
}

/// The target of a security operation.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// The primary block.
    Primary,
    /// Another block: its header and its content.
    Block(Header, Content<'a>),
}

/// The scope flags and the bytes that they select: the primary block in deterministic
/// encoding, the target's header, the security block's header.
pub(crate) fn covered(
    scope: Scope,
    primary: &[u8],
    target: &Target<'_>,
    security: Header,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(primary.len() + 32);
    write_head(&mut out, UNSIGNED, scope.0);
    if let Target::Block(header, _) = target {
        if scope.has_primary() {
            out.extend(primary);
        }
        if scope.0 & Scope::TARGET_HEADER != 0 {
            header.write(&mut out);
        }
    }
    if scope.0 & Scope::SECURITY_HEADER != 0 {
        security.write(&mut out);
    }
    out
}
