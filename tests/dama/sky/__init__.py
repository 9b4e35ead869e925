"""The sky above roads, compared with rays that are cast one by one."""
