#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/safetensors.h"
#include "model_folder.h"

namespace dak {
namespace {

using namespace testing_support;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Parses the header of a file called x that holds `data_bytes` of data.
TensorTable parse(const std::string& header, int64_t data_bytes) {
    return parse_safetensors_header(header, 8 + static_cast<int64_t>(header.size()) + data_bytes,
                                    "x");
}

void expect_refused(const std::string& header, int64_t data_bytes, const std::string& message) {
    EXPECT_THAT([&] { parse(header, data_bytes); }, ThrowsMessage<Error>(HasSubstr(message)))
        << header;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
}

TEST(SafetensorsHeader, GivesPlacesInTheFile) {
    const std::string header =
        R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"__metadata__":{"k":"v"},)"
        R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
    const TensorTable tensors = parse(header, 16);
    ASSERT_EQ(tensors.size(), 2U);
    const TensorInfo& b = tensors.at("b");
    EXPECT_EQ(b.dtype, "BF16");
    EXPECT_EQ(weight_dtype(b), DType::kBF16);
    EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(b.offset, 8 + static_cast<int64_t>(header.size()) + 4);
    EXPECT_EQ(b.bytes, 12);
    EXPECT_EQ(tensors.at("a").bytes, 4);
}

TEST(SafetensorsHeader, KnowsTypesThatWeightsCannotHave) {
    EXPECT_EQ(weight_dtype(parse(entry("I64", "[2]", "[0,16]"), 16).at("t")), std::nullopt);
    EXPECT_EQ(parse(entry("F4", "[2,2]", "[0,2]"), 2).at("t").bytes, 2);
    EXPECT_EQ(parse(entry("F32", "[0,7]", "[0,0]"), 0).at("t").bytes, 0);
}

TEST(SafetensorsHeader, RefusesInconsistentEntries) {
    expect_refused(entry("F17", "[1]", "[0,4]"), 4, "x: tensor 't': unknown dtype 'F17'");
    expect_refused(entry("F32", "[2]", "[0,4]"), 4,
                   "tensor 't': F32 of shape [2] takes 8 bytes, but the offsets give 4");
    expect_refused(entry("F32", "[-1]", "[0,4]"), 4, "field 'shape' must hold sizes, found -1");
    expect_refused(entry("F32", "[1.5]", "[0,4]"), 4, "field 'shape' must hold sizes, found 1.5");
    expect_refused(entry("F32", "[18446744073709551615]", "[0,4]"), 4, "must hold sizes");
    expect_refused(entry("F32", "3", "[0,4]"), 4, "field 'shape' must be a list");
    expect_refused(entry("F32", "[1]", "[4,0]"), 4, "'data_offsets' must be a begin and an end");
    expect_refused(entry("F32", "[1]", "[0]"), 4, "'data_offsets' must be a begin and an end");
    expect_refused(entry("F4", "[3]", "[0,2]"), 2, "does not end on a byte");
    expect_refused(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", 4, "field 'dtype' is missing");
    expect_refused(R"({"t":7})", 0, "x: tensor 't': expected a JSON object");
    expect_refused("[]", 0, "x: header: expected a JSON object");
    expect_refused("{", 0, "x: header: not valid JSON");
}

TEST(SafetensorsHeader, RefusesShapesThatOverflow) {
    expect_refused(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0,
                   "shape [4294967296, 4294967296] is larger than any file");
    expect_refused(entry("F64", "[9223372036854775807]", "[0,0]"), 0, "larger than any file");
}

TEST(SafetensorsHeader, RefusesOverlapsGapsAndTheWrongSize) {
    const auto two = [](const std::string& first, const std::string& second) {
        return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
               R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
    };
    expect_refused(two("[0,4]", "[2,6]"), 6,
                   "tensor 'b' starts at byte 2 of the data where 4 was expected");
    expect_refused(two("[0,4]", "[5,9]"), 9, "tensors overlap or leave a gap");
    expect_refused(two("[0,4]", "[4,8]"), 10, "2 bytes follow the last tensor");
    const std::string header = two("[0,4]", "[4,8]");
    expect_refused(header, 5,
                   fmt::format("the file is truncated: {} bytes, but its header describes {}",
                               8 + header.size() + 5, 8 + header.size() + 8));
    expect_refused(entry("U8", "[9223372036854775800]", "[0,9223372036854775800]"), 5,
                   "is larger than any file");
}

void expect_file_refused(const std::string& content, const std::string& message) {
    const TempFolder folder;
    folder.write("w.safetensors", content);
    EXPECT_THAT([&] { SafetensorsFile(folder.path() / "w.safetensors"); },
                ThrowsMessage<Error>(HasSubstr("w.safetensors: " + message)));
}

TEST(SafetensorsFile, RefusesTruncatedAndForeignFiles) {
    expect_file_refused("", "the file is truncated: 0 bytes are too few");
    expect_file_refused("1234567", "the file is truncated: 7 bytes");
    expect_file_refused(std::string("\x10\0\0\0\0\0\0\0{}", 10),
                        "the file is truncated: 10 bytes, but its header alone takes 24");
    expect_file_refused(std::string(64, 'x'), "no safetensors file");
    expect_file_refused(std::string(64, '\0'), "no safetensors file");
    const std::string good =
        safetensors_bytes({{"t", make_tensor(DType::kF32, {4}, {1, 2, 3, 4})}});
    expect_file_refused(good.substr(0, good.size() - 1), "the file is truncated");
}

TEST(SafetensorsFile, ReadsPartsOfATensor) {
    const TempFolder folder;
    folder.write("w.safetensors",
                 safetensors_bytes({{"a", make_tensor(DType::kF32, {2}, {7, 8})},
                                    {"b", make_tensor(DType::kF32, {2, 2}, {1, 2, 3, 4})}}));
    const SafetensorsFile file(folder.path() / "w.safetensors");
    std::vector<float> row(2);
    file.read(file.tensors().at("b"), 8, std::as_writable_bytes(std::span(row)));
    EXPECT_EQ(row, (std::vector<float>{3, 4}));
}

}  // namespace
}  // namespace dak
