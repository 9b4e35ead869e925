"""What the sky above roads is, against rays that are cast one by one."""
