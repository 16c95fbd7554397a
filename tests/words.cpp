// SPDX-License-Identifier: Apache-2.0
// The words of texts in UTF-8.
#include "data/words.h"

#include <gtest/gtest.h>

#include <string>

namespace {

using hkt::data::words_of;
using Words = std::vector<std::string>;

Words split(const std::string& text) {
  Words words;
  std::size_t end = 0;
  for (const auto& word : words_of(text)) {
    EXPECT_LE(end, word.begin);
    EXPECT_LT(word.begin, word.end);
    end = word.end;
    words.push_back(text.substr(word.begin, word.end - word.begin));
  }
  EXPECT_LE(end, text.size());
  return words;
}

TEST(Words, AreWhatPeopleRead) {
  EXPECT_EQ(split("It's a well-made film, isn't it?"),
            (Words{"It's", "a", "well-made", "film", ",", "isn't", "it", "?"}));
  EXPECT_EQ(split("  two\tlines\nhere  "), (Words{"two", "lines", "here"}));
  EXPECT_EQ(split("wait... 'so' -- <br />"), (Words{"wait", "...", "'", "so", "'", "--", "<", "br", "/", ">"}));
  EXPECT_EQ(split("well--made --so"), (Words{"well", "--", "made", "--", "so"}));
  EXPECT_EQ(split("snake_case x2 3.5"), (Words{"snake_case", "x2", "3", ".", "5"}));
  EXPECT_TRUE(split("").empty());
  EXPECT_TRUE(split(" \n\u00a0\u3000").empty());
}

TEST(Words, OfOtherScripts) {
  EXPECT_EQ(split("Ça, c’est «très» agréable…"), (Words{"Ça", ",", "c’est", "«", "très", "»", "agréable", "…"}));
  EXPECT_EQ(split("Привет, мир"), (Words{"Привет", ",", "мир"}));
  EXPECT_EQ(split("映画が。"), (Words{"映", "画", "が", "。"}));
  EXPECT_EQ(split("cafe\u0301 nai\u0308ve"), (Words{"cafe\u0301", "nai\u0308ve"}));
}

TEST(Words, EmojiAreNotTornApart) {
  EXPECT_EQ(split("ok 😀😀!"), (Words{"ok", "😀", "😀", "!"}));
  EXPECT_EQ(split("👩‍👩‍👧 👍🏽❤️"), (Words{"👩‍👩‍👧", "👍🏽", "❤️"}));
  EXPECT_EQ(split("🇫🇷🇩🇪"), (Words{"🇫🇷", "🇩🇪"}));
}

TEST(Words, BytesThatAreNotTextAreLetters) {
  EXPECT_EQ(split("a\xff\xc3 b"), (Words{"a\xff\xc3", "b"}));
  EXPECT_EQ(split("\xf0\x9f\x98"), (Words{"\xf0\x9f\x98"}));
  EXPECT_EQ(split("\xc3"), (Words{"\xc3"}));
}

}  // namespace
