#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/checkpoint.h"
#include "model_folder.h"

namespace dak {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

TestTensors some_tensors() {
    TestTensors tensors;
    for (const std::string name : {"a", "b", "c", "d", "e"}) {
        tensors[name] = make_test_tensor(name, DType::kBF16, {3, 5});
    }
    return tensors;
}

void expect_values(const Checkpoint& checkpoint, const TestTensors& tensors) {
    for (const auto& [name, expected] : tensors) {
        const StoredTensor& tensor = checkpoint.find(name);
        EXPECT_EQ(tensor.info->shape, expected.shape);
        std::string bytes(expected.bytes.size(), '\0');
        tensor.read(0, std::as_writable_bytes(std::span(bytes)));
        EXPECT_EQ(bytes, expected.bytes) << name;
    }
}

void expect_refused(const TempFolder& folder, const std::string& message) {
    EXPECT_THAT([&] { Checkpoint checkpoint(folder.path()); },
                ThrowsMessage<Error>(AllOf(HasSubstr(message), Not(HasSubstr("\n")))));
}

TEST(Checkpoint, ReadsOneFile) {
    const TempFolder folder;
    folder.write("model.safetensors", safetensors_bytes(some_tensors()));
    expect_values(Checkpoint(folder.path()), some_tensors());
}

TEST(Checkpoint, ReadsShards) {
    const TempFolder folder;
    write_shards(folder, some_tensors(), 3);
    expect_values(Checkpoint(folder.path()), some_tensors());
}

TEST(Checkpoint, MissingTensorIsNamedWithAnExampleOfTheOthers) {
    const TempFolder folder;
    folder.write("model.safetensors", safetensors_bytes(some_tensors()));
    const Checkpoint checkpoint(folder.path());
    EXPECT_FALSE(checkpoint.has("model.norm.weight"));
    EXPECT_THAT(
        [&] { checkpoint.find("model.norm.weight"); },
        ThrowsMessage<Error>(HasSubstr(
            "the checkpoint lacks tensor 'model.norm.weight'; it has 5 others, such as 'a'")));
}

TEST(Checkpoint, MissingShardIsNamed) {
    const TempFolder folder;
    write_shards(folder, some_tensors(), 2);
    std::filesystem::remove(folder.path() / "model-1.safetensors");
    expect_refused(folder, "names shard model-1.safetensors, which is not there");
}

TEST(Checkpoint, TruncatedShardIsNamed) {
    const TempFolder folder;
    write_shards(folder, some_tensors(), 2);
    std::filesystem::resize_file(folder.path() / "model-1.safetensors", 100);
    expect_refused(folder, "model-1.safetensors: the file is truncated: 100 bytes");
}

TEST(Checkpoint, TensorMissingFromItsShardIsNamed) {
    const TempFolder folder;
    TestTensors tensors = some_tensors();
    folder.write("s.safetensors", safetensors_bytes(tensors));
    folder.write("model.safetensors.index.json",
                 R"({"weight_map": {"a": "s.safetensors", "z": "s.safetensors"}})");
    expect_refused(folder, "tensor 'z' should be in s.safetensors, but is not");
}

TEST(Checkpoint, TensorInTwoShardsIsRefused) {
    const TempFolder folder;
    folder.write("s.safetensors", safetensors_bytes(some_tensors()));
    folder.write("t.safetensors", safetensors_bytes(some_tensors()));
    folder.write("model.safetensors.index.json",
                 R"({"weight_map": {"a": "s.safetensors", "b": "t.safetensors"}})");
    expect_refused(folder, "t.safetensors: tensor 'a' is in s.safetensors too");
}

TEST(Checkpoint, FoldersWithoutSafetensorsSayWhatTheyHave) {
    const auto expect = [](const std::string& file, const std::string& message) {
        const TempFolder folder;
        folder.write("README.md", "");
        if (!file.empty()) folder.write(file, "");
        expect_refused(folder, message);
    };
    expect("pytorch_model.bin", "PyTorch's format only (pytorch_model.bin); convert them");
    expect("consolidated.00.pth", "PyTorch's format only (consolidated.00.pth)");
    expect("model.Q4.gguf", "as GGUF only (model.Q4.gguf)");
    expect("adapter_model.safetensors", "holds only an adapter");
    expect("weights.safetensors", "weights.safetensors is there, but neither model.safetensors");
    expect("", "no weights there");
    EXPECT_THAT([] { Checkpoint checkpoint("/nonexistent/model"); },
                ThrowsMessage<Error>(HasSubstr("/nonexistent/model: no such folder")));
}

TEST(Checkpoint, MainDtypeIsThatOfMostBytes) {
    const auto main_dtype = [](const TestTensors& tensors) {
        const TempFolder folder;
        folder.write("model.safetensors", safetensors_bytes(tensors));
        return Checkpoint(folder.path()).main_dtype();
    };
    TestTensors tensors = some_tensors();
    tensors["norm"] = make_test_tensor("norm", DType::kF32, {5});
    tensors["ids"] = {"I64", {1000}, std::string(8000, '\0')};
    EXPECT_EQ(main_dtype(tensors), DType::kBF16);
    EXPECT_THAT(
        [&] {
            main_dtype({{"ids", tensors["ids"]}});
        },
        ThrowsMessage<Error>(HasSubstr("no tensor of the checkpoint is bf16")));
}

TEST(SafetensorsIndex, RefusesWhatIsNoIndex) {
    const auto expect = [](const std::string& text, const std::string& message) {
        EXPECT_THAT([&] { parse_safetensors_index(parse_json(text, "i"), "i"); },
                    ThrowsMessage<Error>(HasSubstr(message)))
            << text;
    };
    expect("[]", "i: expected a JSON object");
    expect("{}", "i: field 'weight_map' must name the shard of each tensor");
    expect(R"({"weight_map": {}})", "i: field 'weight_map' must name");
    expect(R"({"weight_map": {"t": 3}})", "the shard of tensor 't' must be a file name");
    for (const char* path : {"../x", "/etc/passwd", "..", "", "a/b"}) {
        expect(fmt::format(R"({{"weight_map": {{"t": "{}"}}}})", path),
               "the shard of tensor 't' is no plain file name");
    }
}

}  // namespace
}  // namespace dak
