"""Files on local disks, HDFS and every other file system of `tf.io.gfile`."""
