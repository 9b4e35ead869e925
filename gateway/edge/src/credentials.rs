//! Users and passwords.

use crate::config::User;

/// Whether `users` has `user` with `password`. The time taken tells neither
/// which of the two is wrong nor how far it is right.
pub(crate) fn admit(users: &[User], user: &[u8], password: &[u8]) -> bool {
    users.iter().fold(false, |admitted, known| {
        let name = same(known.name.as_bytes(), user);
        let word = same(known.password.as_bytes(), password);
        admitted | (name & word)
    })
}

fn same(known: &[u8], given: &[u8]) -> bool {
    let mut difference = known.len() ^ given.len();
    for (at, octet) in given.iter().enumerate() {
        let expected = known.get(at).copied().unwrap_or(0);
        difference |= usize::from(octet ^ expected);
    }
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_pair_is_admitted() {
        let user = |name: &str, password: &str| User {
            name: name.into(),
            password: password.into(),
        };
        let users = [user("a", "one"), user("b", "two")];
        assert!(admit(&users, b"a", b"one") && admit(&users, b"b", b"two"));
        for (name, password) in [
            ("a", "two"),
            ("a", "on"),
            ("a", "one\0"),
            ("", ""),
            ("c", "one"),
        ] {
            assert!(
                !admit(&users, name.as_bytes(), password.as_bytes()),
                "{name} {password}"
            );
        }
    }
}
