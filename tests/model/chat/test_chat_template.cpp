#include <gmock/gmock.h>

#include <array>
#include <fstream>

#include "model/chat/chat_template.h"
#include "rendering.h"
#include "temp_folder.h"

namespace dak {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kChat =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

const std::array<ChatMessage, 2> kTurns = {ChatMessage{"system", "Be brief."},
                                           ChatMessage{"user", "Hi {{ 1 }} \"there\""}};

/// A model folder that lives as long as the test.
class ModelFolder : public testing::Test {
  protected:
    void write(const std::string& name, std::string_view text) { folder_.write(name, text); }
    void write_config(const Json& config) { write("tokenizer_config.json", config.dump()); }

    std::string render_turns() const {
        const auto loaded = ChatTemplate::load(folder_.path());
        return loaded ? loaded->render(kTurns) : "no template";
    }
    std::string load_error() const {
        try {
            return ChatTemplate::load(folder_.path()) ? "loaded" : "no template";
        } catch (const Error& error) {
            return error.what();
        }
    }

    testing_support::TempFolder folder_;
};

TEST(ChatTemplate, RendersMessages) {
    const auto chat = ChatTemplate::parse(kChat, "t");
    EXPECT_EQ(chat.render(kTurns), "<system>Be brief.<user>Hi {{ 1 }} \"there\"<assistant>");
    EXPECT_EQ(chat.render(kTurns, false), "<system>Be brief.<user>Hi {{ 1 }} \"there\"");
    EXPECT_EQ(chat.render(std::span<const ChatMessage>()), "<assistant>");
}

TEST(ChatTemplate, RendersVariables) {
    const auto chat = ChatTemplate::parse(
        "{{ tools is none }} {{ documents is none }} "
        "{{ add_generation_prompt }} {{ thinking }}",
        "t");
    EXPECT_EQ(chat.render(Json{{"thinking", true}}), "True True False True");
    EXPECT_EQ(chat.render(Json{{"tools", Json::array()}}), "False True False ");
    EXPECT_THROW(chat.render(Json::array()), Error);
}

TEST(ChatTemplate, OrderedVariablesKeepTheOrderOfKeys) {
    const std::string json = R"({"tool": {"name": "f", "a": 1, "Z": [null, 2.0]}})";
    const auto chat = ChatTemplate::parse("{{ tool | tojson }}", "t");
    EXPECT_EQ(chat.render(nlohmann::ordered_json::parse(json)),
              R"({"name": "f", "a": 1, "Z": [null, 2.0]})");
}

TEST(ChatTemplate, ContentIsNeverTakenAsTemplate) {
    const std::array<ChatMessage, 1> turns = {ChatMessage{"user", "{% raw %}{{ bos_token }}"}};
    EXPECT_EQ(ChatTemplate::parse(kChat, "t").render(turns, false),
              "<user>{% raw %}{{ bos_token }}");
}

TEST(ChatTemplate, InvalidUtf8PassesThrough) {
    const std::array<ChatMessage, 1> turns = {ChatMessage{"user", "a\xff\xe2\x82 b"}};
    const auto chat = ChatTemplate::parse(
        "{{ messages[0].content | trim }}|"
        "{{ messages[0].content[1:3] }}|"
        "{{ messages[0].content | length }}",
        "t");
    EXPECT_EQ(chat.render(turns), "a\xff\xe2\x82 b|\xff\xe2|6");
}

TEST(ChatTemplate, RaisedMessageComesThroughOnOneLine) {
    EXPECT_EQ(error_of("{{ raise_exception('Roles must\\nalternate') }}"),
              "t: the template refuses the conversation: Roles must alternate");
}

TEST_F(ModelFolder, WithoutTemplateGivesNothing) {
    EXPECT_FALSE(ChatTemplate::load(folder_.path()).has_value());
    write_config({{"bos_token", "<s>"}, {"chat_template", nullptr}});
    EXPECT_FALSE(ChatTemplate::load(folder_.path()).has_value());
}

TEST_F(ModelFolder, TemplateAndTokensOfTokenizerConfig) {
    write_config({{"chat_template", kChat},
                  {"bos_token", "<s>"},
                  {"eos_token", {{"content", "</s>"}, {"lstrip", false}}},
                  {"pad_token", nullptr},
                  {"add_bos_token", true}});
    EXPECT_EQ(render_turns(), "<s><system>Be brief.</s><user>Hi {{ 1 }} \"there\"</s><assistant>");
}

TEST_F(ModelFolder, TokensOfSpecialTokensMapComeSecond) {
    write_config({{"chat_template", "{{ bos_token }} {{ eos_token }}"}, {"bos_token", "<s>"}});
    write("special_tokens_map.json", R"({"bos_token": "<b>", "eos_token": {"content": "<e>"}})");
    EXPECT_EQ(render_turns(), "<s> <e>");
}

TEST_F(ModelFolder, VariablesOverrideTokens) {
    write_config({{"chat_template", "{{ bos_token }}"}, {"bos_token", "<s>"}});
    EXPECT_EQ(ChatTemplate::load(folder_.path())->render(Json{{"bos_token", "<x>"}}), "<x>");
}

TEST_F(ModelFolder, NamedTemplates) {
    const Json tool_use = {{"name", "tool_use"}, {"template", "T"}};
    write_config({{"chat_template", {tool_use, {{"name", "default"}, {"template", "D"}}}}});
    EXPECT_EQ(render_turns(), "D");
    write_config({{"chat_template", Json::array({tool_use})}});
    EXPECT_THAT(load_error(), HasSubstr("no template is named 'default'; found tool_use"));
}

TEST_F(ModelFolder, TemplateFiles) {
    write("chat_template.json", R"({"chat_template": "from json"})");
    EXPECT_EQ(render_turns(), "from json");
    write_config({{"chat_template", "from config"}});
    EXPECT_EQ(render_turns(), "from config");
    write("chat_template.jinja", "from jinja\n");
    EXPECT_EQ(render_turns(), "from jinja");
}

TEST_F(ModelFolder, FaultsNameTheFile) {
    write_config({{"chat_template", 5}});
    EXPECT_THAT(load_error(),
                HasSubstr("tokenizer_config.json: field 'chat_template' must be a string"));
    write_config({{"chat_template", "a\n{% include 'x' %}"}});
    EXPECT_THAT(load_error(), StartsWith((folder_.path() / "tokenizer_config.json").string()));
    EXPECT_THAT(load_error(),
                EndsWith("(chat_template), line 2: the tag 'include' is not supported"));
    write("tokenizer_config.json", "{");
    EXPECT_THAT(load_error(), HasSubstr("not valid JSON"));
    write("tokenizer_config.json", "[]");
    EXPECT_THAT(load_error(), HasSubstr("expected a JSON object"));
}

}  // namespace
}  // namespace dak
