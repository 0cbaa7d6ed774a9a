"""Facts of a run's report, by hand."""

from plsc_tf.jobs import report_facts


def test_flops_and_parameters_are_those_counted_by_hand(make_model):
    model = make_model()
    # Conv2D 3 × 3, stride 2, of 8 × 8 × 3 to 3 × 3 × 4: 27 products for each of 36
    # outputs and their bias; Dense 36 to 6 and its bias; (x − 127.5) / 128 of 192.
    convolution, dense = 2 * 27 * 36 + 36, 2 * 36 * 6 + 6
    assert report_facts.flops(model) == convolution + dense + 2 * 8 * 8 * 3
    told = report_facts.network(model)
    assert told["network parameters"] == f"{27 * 4 + 4 + 36 * 6 + 6:,}"
    assert told["head parameters"] == "30: weight 5×6"


def test_memory_is_asked_by_the_name_that_tensorflow_takes():
    # `tf.config.experimental.get_memory_info` wants "GPU:0".
    asked = report_facts.short_name("/job:worker/replica:0/task:1/device:GPU:3")
    assert asked == "GPU:3"
    assert report_facts.short_name("/replica:0/task:0/device:CPU:0") == "CPU:0"
