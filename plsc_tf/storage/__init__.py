"""Accesses files on local disks, HDFS and any other `tf.io.gfile` file system."""
