"""Accesses files on local disks, HDFS, S3 and any `tf.io.gfile` file system."""
