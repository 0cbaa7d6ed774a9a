"""The scripts of PLSC's documents (seeds 000 and 004), verbatim unless noted."""

TRAIN = """
from plsc import Entry

if __name__ == "__main__":
    ins = Entry()
    ins.set_train_epochs(1)
    ins.set_model_save_dir("./saved_model")
    # ins.set_with_test(False)
    # ins.set_loss_type('arcface')
    ins.train()
"""

VAL = """
from plsc import Entry

if __name__ == "__main__":
    ins = Entry()
    ins.set_checkpoint_dir("./saved_model/0/")
    ins.test()
"""

EXPORT = """
from plsc import Entry

if __name__ == "__main__":
    ins = Entry()
    ins.set_checkpoint_dir('./pretrain_model')
    ins.set_model_save_dir('./inference_model')

    ins.convert_for_prediction()
"""

CLASSES = """
from plsc import Entry

ins = Entry()
ins.set_class_num(85742)
ins.train()
"""

MIXED_PRECISION = """
from plsc import Entry

def main():
    ins = Entry()
    ins.set_mixed_precision(True)
    ins.train()
if __name__ == "__main__":
    main()
"""

UPLOAD = """
from plsc import Entry

if __name__ == "__main__":
    ins = Entry()
    ins.set_model_save_dir('./saved_model')
    ins.set_hdfs_info("you_hdfs_addr", "name,passwd", "some_dir")
    ins.train()
"""

DOWNLOAD = """
from plsc import Entry

if __name__ == "__main__":
    ins = Entry()
    ins.set_checkpoint_dir('./saved_model')
    ins.set_hdfs_info("you_hdfs_addr",
                      "name,passwd",
                      fs_checkpoint_dir="some_dir")
    ins.train()
"""

SERVER = """
from plsc_serving.run import PLSCServer
fs = PLSCServer()
fs.with_model(model_path = '/XXX/XXX')
fs.run(gpu_index = 0, port = 8010)
"""

# The manual's last line is bc.close(), but the variable is named fc.
CLIENT = """
from face_service import FaceService
with open('./data/00000000.jpg', 'rb') as f:
    image = f.read()
fc = FaceService()
fc.connect('127.0.0.1:8010')
result = fc.encode([image])
print(result[0])
fc.close()
"""

# Adapted: the layers are Keras layers, and one network serves both modes.
CUSTOM_MODEL = """
import keras
from plsc import Entry
from plsc.models.base_model import BaseModel

class ResNet(BaseModel):
    def __init__(self, layers=50, emb_dim=512):
        super(ResNet, self).__init__()
        self.layers = layers
        self.emb_dim = emb_dim

    def build_network(self,
                      input,
                      label,
                      is_train):
        layers = self.layers
        supported_layers = [10, 50, 101, 152]
        assert layers in supported_layers, \\
            "supported layers {}, but given {}".format(supported_layers, layers)

        if layers == 10:
            depth = [1, 1]
            num_filters = [8, 16]
        elif layers == 50:
            depth = [3, 4, 14, 3]
            num_filters = [64, 128, 256, 512]
        elif layers == 101:
            depth = [3, 4, 23, 3]
            num_filters = [256, 512, 1024, 2048]
        elif layers == 152:
            depth = [3, 8, 36, 3]
            num_filters = [256, 512, 1024, 2048]

        conv = self.conv_bn_layer(input, num_filters[0], 3, 1, act='prelu')

        for block in range(len(depth)):
            for i in range(depth[block]):
                conv = self.residual_block(
                    input=conv,
                    num_filters=num_filters[block],
                    stride=2 if i == 0 else 1)

        bn = keras.layers.BatchNormalization(epsilon=2e-05)(conv)
        drop = keras.layers.Dropout(0.4)(bn)
        fc = keras.layers.Dense(self.emb_dim)(keras.layers.Flatten()(drop))
        emb = keras.layers.BatchNormalization(epsilon=2e-05)(fc)
        return emb

    def conv_bn_layer(self, input, num_filters, filter_size, stride, act=None):
        conv = keras.layers.Conv2D(
            num_filters, filter_size, stride, padding='same', use_bias=False)(input)
        bn = keras.layers.BatchNormalization(epsilon=2e-05)(conv)
        return keras.layers.PReLU(shared_axes=[1, 2, 3])(bn) if act else bn

    def residual_block(self, input, num_filters, stride):
        conv = self.conv_bn_layer(input, num_filters, 3, 1, act='prelu')
        conv = self.conv_bn_layer(conv, num_filters, 3, stride)
        short = input
        if stride != 1 or input.shape[-1] != num_filters:
            short = self.conv_bn_layer(input, num_filters, 1, stride)
        return keras.layers.add([short, conv])

if __name__ == "__main__":
    ins = Entry()
    ins.set_model(ResNet(LAYERS, EMB_DIM))
    ins.train()
"""

# Completed: the manual's text breaks off, and lacks two imports and a function.
CUSTOM_READER = """
import random
import os

import numpy as np
from PIL import Image

from plsc import Entry

def get_train_image_list(data_dir):
    with open(os.path.join(data_dir, 'label.txt'), 'r') as f:
        lines = [line.split() for line in f]
    return [(path, int(label)) for path, label in lines]

def arc_train(data_dir):
    train_image_list = get_train_image_list(data_dir)
    def reader():
        for j in range(len(train_image_list)):
            path, label = train_image_list[j]
            path = os.path.join(data_dir, path)
            img = Image.open(path)
            if random.randint(0, 1) == 1:
                img = img.transpose(Image.FLIP_LEFT_RIGHT)
            if img.mode != 'RGB':
                img = img.convert('RGB')
            img = np.array(img).astype('float32').transpose((2, 0, 1))
            yield img, label
    return reader

if __name__ == "__main__":
    ins = Entry()
    ins.train_reader = arc_train('./train_data')
    ins.train()
"""
