"""The names of the room, and where each lives."""

from .forms.form import FORMS as FORMS
from .forms.targets import Wanted as Wanted
from .images import ImageData as ImageData
from .images import TensorData as TensorData
from .sources import DATA_SETS as DATA_SETS
from .sources import Found as Found
from .sources import Source as Source
from .sources import catalogue as catalogue
from .sources import check_options as check_options
from .sources import incomplete as incomplete
from .sources import load as load
from .split import Split as Split
from .texts import TextData as TextData
from .texts import TokenData as TokenData
